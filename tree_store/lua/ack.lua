#!lua flags=allow-oom
-- Takes an entry out of the queue. A script, because no MULTI is let in when memory is full.
-- KEYS[1] tb:queue   ARGV[1] consumer group  [2] entry id

redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
return redis.call('XDEL', KEYS[1], ARGV[2])
