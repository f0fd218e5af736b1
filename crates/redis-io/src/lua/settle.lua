-- Ends an attempt once (INV-7), raises the floor, trims the log, ends a deferral.
-- KEYS[2] att, [3] att:<id>, [4] log, [5] refused, [6] notes.
-- ARGV[4] id, [5] outcome, [6] floor, [7] first id to keep, [8] done ids, [9] tip or '', [10] bytes freed,
-- [11] life of the record in seconds, [12] subtrees or '', then pairs: refused path, reason ('' clears).
if redis.call('HEXISTS', KEYS[3], 'outcome') == 0 then
  redis.call('HSET', KEYS[3], 'outcome', ARGV[5])
  redis.call('EXPIRE', KEYS[3], ARGV[11])
  redis.call('ZREM', KEYS[2], ARGV[4])
end
redis.call('HDEL', KEYS[6], 'deferred')
redis.call('HSET', meta, 'floor', ARGV[6], 'done', ARGV[8])
if ARGV[9] ~= '' then redis.call('HSET', meta, 'tip', ARGV[9]) end
if ARGV[12] ~= '' then redis.call('HSET', meta, 'subtrees', ARGV[12]) end
if ARGV[7] ~= '' then redis.call('XTRIM', KEYS[4], 'MINID', ARGV[7]) end
local bytes = math.max(tonumber(redis.call('HGET', meta, 'bytes') or '0') - tonumber(ARGV[10]), 0)
redis.call('HSET', meta, 'bytes', string.format('%.0f', bytes))
for i = 13, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[5], ARGV[i])
  else redis.call('HSET', KEYS[5], ARGV[i], ARGV[i + 1]) end
end
return {'OK', op}
