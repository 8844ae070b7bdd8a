#!lua flags=allow-oom
-- Extends the lease of a running tree. Allowed when memory is full: it adds nothing.
-- KEYS[1] meta  [2] events   ARGV[1] epoch  [2] lease in seconds
-- Returns 1 when cancellation was asked for, else 0.
--#include shared/tree.lua

local stored = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'cancel_requested')
local epoch, state, cancel = unpack(stored)
if not epoch then return not_found() end
if epoch ~= ARGV[1] or state ~= 'running' then
  return refuse('STALE_EPOCH', 'epoch', ARGV[1], 'has ended, the tree is', state, 'at', epoch)
end
redis.call('HSET', KEYS[1], 'lease', seconds(now + milliseconds(ARGV[2])))
return tonumber(cancel)
