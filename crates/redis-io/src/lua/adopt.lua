-- Take-over, or a return after a lost connection: the only script that creates `meta`.
-- KEYS[1] meta. ARGV: epoch, holder, fresh incarnation, schema.
local meta = KEYS[1]
local m = redis.call('HMGET', meta, 'inc', 'epoch', 'holder')
local mine = tonumber(ARGV[1])
if not m[1] then
  redis.call('HSET', meta, 'inc', ARGV[3], 'epoch', ARGV[1], 'holder', ARGV[2], 'op', '0', 'floor', '0-0',
    'done', '', 'bytes', '0', 'schema', ARGV[4])
  return {'OK', 'created', ARGV[3], '0', '0-0', '', '', ARGV[4], ''}
end
local stored = tonumber(m[2])
if stored > mine or (stored == mine and m[3] ~= ARGV[2]) then return {'FENCED', m[2]} end
local op = redis.call('HINCRBY', meta, 'op', 1)
redis.call('HSET', meta, 'epoch', ARGV[1], 'holder', ARGV[2])
local r = redis.call('HMGET', meta, 'floor', 'done', 'tip', 'schema', 'subtrees')
return {'OK', 'kept', m[1], tostring(op), r[1] or '0-0', r[2] or '', r[3] or '', r[4] or ARGV[4], r[5] or ''}
