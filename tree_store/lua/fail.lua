#!lua flags=allow-oom
-- running -> failed by its owner, without a batch: the owner may not know what an earlier one left open.
-- Allowed when memory is full. A repeat changes nothing.
-- KEYS as in shared/nodes.lua   ARGV[1] batch (JSON) of the nodes still open, with `ending`  [2] epoch
-- Returns 1.
--#include shared/tree.lua
--#include shared/nodes.lua
--#include shared/ending.lua

local stored = redis.call('HMGET', KEYS[1], 'epoch', 'state')
local epoch, state = unpack(stored)
if not epoch then return not_found() end
if epoch == ARGV[2] and state == 'failed' then return 1 end
if epoch ~= ARGV[2] or state ~= 'running' then
  return refuse('STALE_EPOCH', 'epoch', ARGV[2], 'has ended, the tree is', state, 'at', epoch)
end
return end_early(cjson.decode(ARGV[1]))
