-- An attempt exists before any side effect; reserving the same id again changes nothing.
-- KEYS[2] att (open ids), KEYS[3] att:<id>. ARGV[4] id, [5] score, [6] entry ids, [7] trigger.
if redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('ZADD', KEYS[2], ARGV[5], ARGV[4])
  redis.call('HSET', KEYS[3], 'entries', ARGV[6], 'trigger', ARGV[7])
end
return {'OK', op}
