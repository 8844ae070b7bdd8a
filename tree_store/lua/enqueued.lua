#!lua flags=allow-oom
-- Notes under which entry a queued tree stands in tb:queue.
-- KEYS[1] meta  [2] events   ARGV[1] entry id  [2] the entry that it replaces, or ''
-- Returns 1, or 0 when the tree is not queued any more or another entry stands for it.
--#include shared/tree.lua

local stored = redis.call('HMGET', KEYS[1], 'state', 'queue_entry')
if stored[2] == ARGV[1] then return 1 end
if stored[1] ~= 'queued' or stored[2] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'queue_entry', ARGV[1])
return 1
