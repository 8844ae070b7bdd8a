#!lua flags=allow-oom
-- running -> succeeded | failed | cancelled, together with the last batch.
-- Allowed when memory is full: what was accepted has to be able to end.
-- KEYS as in shared/nodes.lua, ARGV as in shared/batch.lua; the batch also holds `ending`,
-- and the last of ARGV is the whole outcome (JSON), or '' when there is none.
-- Returns 1, or 0 when this seq was applied before.
--#include shared/tree.lua
--#include shared/nodes.lua
--#include shared/batch.lua
--#include shared/ending.lua

local done = fence()
if done then return done end
local batch = cjson.decode(ARGV[3])
local refused = check_nodes(batch.nodes) or check_accounting()
if refused then return refused end
write_batch(batch)
if ARGV[#ARGV] ~= '' then redis.call('SET', KEYS[5], ARGV[#ARGV]) end
end_tree(batch.ending)
return 1
