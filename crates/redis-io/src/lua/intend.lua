-- Written anew for every round, just before sending (F9). KEYS[2] att:<id>. ARGV[4] base or '', [5] new.
if redis.call('EXISTS', KEYS[2]) == 0 then return {'LOST', 'the attempt is missing'} end
if redis.call('HEXISTS', KEYS[2], 'outcome') == 1 then return {'SETTLED', op} end
redis.call('HSET', KEYS[2], 'base', ARGV[4], 'new', ARGV[5])
return {'OK', op}
