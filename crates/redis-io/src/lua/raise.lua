-- A new obligation: the generation of each scope rises, so a replay that began earlier cannot clear it (F4).
-- KEYS[2] settled. ARGV[4] '1' forgets the settled records too, [5..] scope keys. Answers the generations in order.
local out = {'OK', op}
for i = 5, #ARGV do
  if ARGV[4] == '1' then redis.call('HDEL', KEYS[2], 's|' .. ARGV[i]) end
  out[#out + 1] = redis.call('HINCRBY', KEYS[2], 'g|' .. ARGV[i], 1)
end
return out
