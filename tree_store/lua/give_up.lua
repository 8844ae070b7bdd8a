#!lua flags=allow-oom
-- queued -> failed when the tree has run, its deadline has passed and nobody took it to hold the vote.
-- KEYS as in shared/nodes.lua
-- ARGV[1] batch (JSON) of the nodes still open, with `ending`  [2] seconds since the deadline
-- Returns 1 when the tree has failed, else 0.
--#include shared/tree.lua
--#include shared/nodes.lua
--#include shared/ending.lua

local stored = redis.call('HMGET', KEYS[1], 'state', 'deadline', 'epoch')
local state, deadline, epoch = unpack(stored)
if not state then return not_found() end
if state == 'failed' then return 1 end
if state ~= 'queued' or epoch == '0' or milliseconds(deadline) + milliseconds(ARGV[2]) > now then return 0 end
return end_early(cjson.decode(ARGV[1]))
