-- A scope left the selection: its settled record, generation and inventory go, its files stay in Git.
-- KEYS[2] settled, [3] inventory. ARGV[4] scope key.
redis.call('HDEL', KEYS[2], 's|' .. ARGV[4], 'g|' .. ARGV[4])
redis.call('DEL', KEYS[3])
return {'OK', op}
