#!lua flags=allow-oom
-- queued -> expired when the deadline has passed.
-- KEYS as in shared/nodes.lua   ARGV[1] batch (JSON) of the nodes still open, with `ending`
-- Returns 1 when the tree is expired, else 0.
--#include shared/tree.lua
--#include shared/nodes.lua
--#include shared/ending.lua

local stored = redis.call('HMGET', KEYS[1], 'state', 'deadline')
local state, deadline = unpack(stored)
if not state then return refuse('NOT_FOUND', KEYS[1]) end
if state == 'expired' then return 1 end
if state ~= 'queued' or milliseconds(deadline) > now then return 0 end
return end_queued(cjson.decode(ARGV[1]))
