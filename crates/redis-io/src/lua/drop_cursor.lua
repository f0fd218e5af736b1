-- A watch key is no longer wanted, or its cursor is of no use (410, another source): it will be replayed.
-- KEYS[2] cur. ARGV[4] watch key, [5] '1' to remove the record, '0' to forget only the resourceVersion.
if ARGV[5] == '1' then
  redis.call('HDEL', KEYS[2], ARGV[4])
else
  local raw = redis.call('HGET', KEYS[2], ARGV[4])
  if raw then redis.call('HSET', KEYS[2], ARGV[4], (raw:gsub('^[^\n]*', '', 1))) end
end
return {'OK', op}
