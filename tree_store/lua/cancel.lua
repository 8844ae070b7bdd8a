#!lua flags=allow-oom
-- queued -> cancelled; a running tree is asked to, a tree that has ended is left alone.
-- KEYS as in shared/nodes.lua   ARGV[1] batch (JSON) of the nodes still open, with `ending`
-- Returns 1 when the tree is cancelled, else 0.
--#include shared/tree.lua
--#include shared/nodes.lua
--#include shared/ending.lua

local stored = redis.call('HMGET', KEYS[1], 'state', 'cancel_requested')
local state, asked = unpack(stored)
if not state then return not_found() end
if state == 'queued' then return end_early(cjson.decode(ARGV[1])) end
if state == 'running' and asked == '0' then
  redis.call('HSET', KEYS[1], 'cancel_requested', 1)
  emit('type', 'tree', 'from', state, 'to', state, 'reason', 'cancel_requested')
end
return state == 'cancelled' and 1 or 0
