#!lua flags=allow-oom
-- Sets the expiry of keys of one tree; keys that do not exist are left alone.
-- KEYS any   ARGV[1] when they expire, in milliseconds since the epoch

for _, key in ipairs(KEYS) do
  redis.call('PEXPIREAT', key, ARGV[1])
end
return #KEYS
