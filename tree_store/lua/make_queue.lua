#!lua flags=allow-oom
-- Makes the queue and its consumer group where they are missing. Allowed when memory is full, as push.lua is.
-- KEYS[1] tb:queue   ARGV[1] consumer group

local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
return 1
