-- A scope was replayed and its files are in the remote: record "settled", replace the inventory, and for a replay of the
-- whole watch key set the cursor (F3a). The inventory of the list was staged beside; newer live entries win.
-- KEYS[2] settled, [3] cur, [4] inventory, [5] staged inventory.
-- ARGV[4] scope key, [5] generation read before the LIST, [6] spec hash, [7] watch key or '', [8] watch epoch,
-- [9] stream, [10] list resourceVersion, [11] list resourceVersion as a number or ''.
if ARGV[7] ~= '' then
  local raw = redis.call('HGET', KEYS[3], ARGV[7])
  local epoch, stream = (raw or ''):match('^[^\n]*\n(%d+)\n(%d+)\n')
  if epoch ~= ARGV[8] or stream ~= ARGV[9] then
    redis.call('DEL', KEYS[5])
    return {'STALE', op}
  end
end
local generation = redis.call('HGET', KEYS[2], 'g|' .. ARGV[4]) or '0'
if generation ~= ARGV[5] then
  redis.call('DEL', KEYS[5])
  return {'RAISED', op, generation}
end
local list = tonumber(ARGV[11])
if list then
  local old = redis.call('HGETALL', KEYS[4])
  for i = 1, #old, 2 do
    local version = tonumber(old[i + 1]:match('^[^\n]*\n([^\n]*)\n'))
    if version and version > list then redis.call('HSET', KEYS[5], old[i], old[i + 1]) end
  end
end
redis.call('DEL', KEYS[4])
if redis.call('EXISTS', KEYS[5]) == 1 then redis.call('RENAME', KEYS[5], KEYS[4]) end
redis.call('HSET', KEYS[2], 's|' .. ARGV[4], ARGV[5] .. '\n' .. ARGV[6])
return {'OK', op}
