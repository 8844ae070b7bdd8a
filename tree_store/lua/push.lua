#!lua flags=allow-oom
-- Adds an entry to the queue. Allowed when memory is full: what was accepted has to be able to go on.
-- KEYS[1] tb:queue   ARGV[1] tree id
-- Returns the entry's id.

return redis.call('XADD', KEYS[1], '*', 'tree', ARGV[1])
