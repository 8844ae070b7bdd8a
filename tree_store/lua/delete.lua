#!lua flags=allow-oom
-- Takes a tree that has ended out of sight: its hash becomes `deleted`, which says what is left to be deleted.
-- A repeat finds that and changes nothing.
-- KEYS[1] meta  [2] events  [3] deleted  [4..] the tree's other keys, without those of its nodes
-- Returns 1.
--#include shared/tree.lua

local state = meta('state')
if state == 'queued' or state == 'running' then return refuse('TREE_REFUSED', state, 'it has not ended') end
if state then
  redis.call('RENAME', KEYS[1], KEYS[3])
  redis.call('UNLINK', KEYS[2], unpack(KEYS, 4))
end
if redis.call('EXISTS', KEYS[3]) == 0 then return not_found() end
return 1
