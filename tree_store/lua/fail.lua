#!lua flags=allow-oom
-- queued -> failed. A repeat changes nothing.
-- KEYS as in shared/nodes.lua   ARGV[1] batch (JSON) of the nodes still open, with `ending`
-- Returns 1.
--#include shared/tree.lua
--#include shared/nodes.lua
--#include shared/ending.lua

local state = meta('state')
if not state then return refuse('NOT_FOUND', KEYS[1]) end
if state == 'failed' then return 1 end
if state ~= 'queued' then return refuse('TREE_REFUSED', state, 'it does not wait in the queue') end
return end_queued(cjson.decode(ARGV[1]))
