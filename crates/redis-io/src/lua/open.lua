-- A watcher's first act on a branch, and again after every GAP, detach or rewind (F2).
-- KEYS[2] cur. ARGV[4..7] = watch key, watch epoch, stream, scope hash.
-- A cursor is stored as five lines: resourceVersion, watch epoch, stream, seq, scope hash.
local raw = redis.call('HGET', KEYS[2], ARGV[4])
local rv = ''
if raw then
  local srv, epoch, stream = raw:match('^([^\n]*)\n(%d+)\n(%d+)\n')
  epoch, stream = tonumber(epoch), tonumber(stream)
  local we, st = tonumber(ARGV[5]), tonumber(ARGV[6])
  if epoch > we or (epoch == we and stream >= st) then return {'STALE', op, epoch} end
  rv = srv
end
redis.call('HSET', KEYS[2], ARGV[4], rv .. '\n' .. ARGV[5] .. '\n' .. ARGV[6] .. '\n0\n' .. ARGV[7])
return {'OK', op, rv}
