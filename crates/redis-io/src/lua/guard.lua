-- Prefix of every script but adopt. KEYS[1] is `meta`; ARGV[1..3] = incarnation, owner epoch, last op counter the
-- caller has seen. The incarnation is compared before the epoch (F17); `meta` is never created here (F5).
local meta = KEYS[1]
local function guard()
  local m = redis.call('HMGET', meta, 'inc', 'epoch', 'op')
  if not m[1] then return {'LOST', 'meta is missing'} end
  if m[1] ~= ARGV[1] then return {'LOST', 'another incarnation'} end
  local stored, mine = tonumber(m[2]), tonumber(ARGV[2])
  if stored > mine then return {'FENCED', m[2]} end
  if stored < mine then return {'LOST', 'the epoch went back'} end
  if tonumber(m[3]) < tonumber(ARGV[3]) then return {'LOST', 'the operation counter went back'} end
  return nil
end
local refused = guard()
if refused then return refused end
local op = redis.call('HINCRBY', meta, 'op', 1)
