-- Something that the next owner has to know. KEYS[2] notes. ARGV[4] field, [5] value ('' deletes),
-- [6] delay in milliseconds by this server's clock, or '': the value is then stored behind the moment at which it ends.
if ARGV[5] == '' then
  redis.call('HDEL', KEYS[2], ARGV[4])
elseif ARGV[6] == '' then
  redis.call('HSET', KEYS[2], ARGV[4], ARGV[5])
else
  local time = redis.call('TIME')
  local ends = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + tonumber(ARGV[6])
  redis.call('HSET', KEYS[2], ARGV[4], string.format('%.0f', ends) .. '\n' .. ARGV[5])
end
return {'OK', op}
