#!lua
-- Applies one batch of a running tree, whole or not at all.
-- KEYS as in shared/nodes.lua, ARGV as in shared/batch.lua.
-- Returns 1, or 0 when this seq was applied before.
--#include shared/tree.lua
--#include shared/nodes.lua
--#include shared/batch.lua

local done = fence()
if done then return done end
local batch = cjson.decode(ARGV[3])
local refused = check_nodes(batch.nodes)
if refused then return refused end
write_batch(batch)
return 1
