#!lua flags=allow-oom
-- queued -> expired when the deadline has passed before the tree ran.
-- KEYS as in shared/nodes.lua   ARGV[1] batch (JSON) of the nodes still open, with `ending`
-- Returns 1 when the tree is expired, else 0.
--#include shared/tree.lua
--#include shared/nodes.lua
--#include shared/ending.lua

local stored = redis.call('HMGET', KEYS[1], 'state', 'deadline', 'epoch')
local state, deadline, epoch = unpack(stored)
if not state then return not_found() end
if state == 'expired' then return 1 end
if state ~= 'queued' or epoch ~= '0' or milliseconds(deadline) > now then return 0 end
return end_early(cjson.decode(ARGV[1]))
