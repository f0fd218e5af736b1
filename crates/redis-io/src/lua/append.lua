-- One frame: entries added, cursor moved, inventory updated, or nothing at all (INV-2).
-- KEYS[2] cur, KEYS[3] log, KEYS[4..] the inventories that the entries name by index (1 = KEYS[4]).
-- ARGV[4..8] = watch key, watch epoch, stream, seq, scope hash; [9] cursor or ''; [10] entry limit; [11] byte limit;
-- then per entry: id, inventory index, field, uid, rv, '1' for a delete, bytes that it counts for, record.
local raw = redis.call('HGET', KEYS[2], ARGV[4])
if not raw then return {'STALE', op} end
local rv, epoch, stream, seq, hash = raw:match('^([^\n]*)\n(%d+)\n(%d+)\n(%d+)\n(.*)$')
epoch, stream, seq = tonumber(epoch), tonumber(stream), tonumber(seq)
local we, st, sq = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if we ~= epoch or st < stream then return {'STALE', op} end
if st > stream then return {'GAP', op} end
if sq <= seq then return {'DUP', op} end
if sq ~= seq + 1 then return {'GAP', op} end
if hash ~= ARGV[8] then return {'RESCOPE', op} end
local bytes = tonumber(redis.call('HGET', meta, 'bytes') or '0')
if #ARGV > 11 and (redis.call('XLEN', KEYS[3]) >= tonumber(ARGV[10]) or bytes >= tonumber(ARGV[11])) then
  return {'FULL', op}
end
local time = redis.call('TIME')
local now = time[1] .. string.format('%03d', math.floor(tonumber(time[2]) / 1000))
local kept, added = {}, 0
for i = 12, #ARGV, 8 do
  local inv, field = KEYS[3 + tonumber(ARGV[i + 1])], ARGV[i + 2]
  local uid, version, deleted = ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local seen = redis.call('HGET', inv, field)
  local keep = true
  if seen then
    local suid, srv = seen:match('^([^\n]*)\n([^\n]*)\n')
    local a, b = tonumber(version), tonumber(srv)
    if suid == uid and a and b and a <= b then keep = false end
  end
  if keep then
    redis.call('XADD', KEYS[3], ARGV[i], 't', now, 'e', ARGV[i + 7])
    redis.call('HSET', inv, field, uid .. '\n' .. version .. '\n' .. (deleted == '1' and now or ''))
    added = added + tonumber(ARGV[i + 6])
    kept[#kept + 1] = '1'
  else
    kept[#kept + 1] = '0'
  end
end
if ARGV[9] ~= '' then rv = ARGV[9] end
redis.call('HSET', KEYS[2], ARGV[4], rv .. '\n' .. ARGV[5] .. '\n' .. ARGV[6] .. '\n' .. ARGV[7] .. '\n' .. hash)
if added > 0 then redis.call('HINCRBY', meta, 'bytes', string.format('%.0f', added)) end
return {'OK', op, now, table.concat(kept)}
