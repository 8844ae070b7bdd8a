#!lua flags=allow-oom
-- running -> queued: its owner hands the tree back. A repeat changes nothing.
-- KEYS[1] meta  [2] events   ARGV[1] epoch
-- Returns 1 when cancellation was asked for, else 0.
--#include shared/tree.lua

local stored = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'cancel_requested')
local epoch, state, cancel = unpack(stored)
if not epoch then return not_found() end
if epoch ~= ARGV[1] then
  return refuse('STALE_EPOCH', 'epoch', ARGV[1], 'has ended, the tree is at', epoch)
end
if state == 'queued' then return tonumber(cancel) end
if state ~= 'running' then return refuse('TREE_REFUSED', state, 'it cannot be handed back') end
return back_to_queue('handed_back')
