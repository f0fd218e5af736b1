-- May this user do all that the other scripts and reads do? Each command is tried once on scratch keys that go at the end.
-- KEYS[1..4] scratch: a hash and its second name, a stream, a sorted set; without DEL they expire.
-- Answers pairs: command, refusal.
local a, b, c, d = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local out = {}
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    out[#out + 1] = (...)
    out[#out + 1] = answer.err
  end
end
try('TIME')
try('HSET', a, 'n', '1')
try('EXPIRE', a, 60)
try('HGET', a, 'n')
try('HMGET', a, 'n')
try('HGETALL', a)
try('HEXISTS', a, 'n')
try('HINCRBY', a, 'n', 1)
try('HDEL', a, 'm')
try('EXISTS', a)
if #out == 0 then try('RENAME', a, b) end
try('XADD', c, '1-1', 'f', 'v')
try('EXPIRE', c, 60)
try('XLEN', c)
try('XRANGE', c, '-', '+')
try('XTRIM', c, 'MINID', '1-2')
try('ZADD', d, 1, 'm')
try('EXPIRE', d, 60)
try('ZRANGE', d, 0, -1)
try('ZREM', d, 'm')
try('DEL', a, b, c, d)
return out
