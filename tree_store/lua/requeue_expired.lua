#!lua flags=allow-oom
-- running -> queued when the lease has run out.
-- KEYS[1] meta  [2] events
-- Returns -1 when there was nothing to do, else 1 when cancellation was asked for, else 0.
--#include shared/tree.lua

local stored = redis.call('HMGET', KEYS[1], 'state', 'lease')
if not stored[1] then return not_found() end
if stored[1] ~= 'running' or milliseconds(stored[2]) > now then return -1 end
return back_to_queue('lease_expired')
