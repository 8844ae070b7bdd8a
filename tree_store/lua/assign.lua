#!lua
-- queued -> running under a new epoch, with a lease.
-- KEYS[1] meta  [2] events
-- ARGV[1] worker  [2] lease in seconds  [3] a token unique to this assignment: its repeat gets the same epoch
-- Returns {epoch, search}.
--#include shared/tree.lua

local stored = redis.call('HMGET', KEYS[1], 'state', 'assignment', 'deadline', 'started', 'epoch')
local state, assignment, deadline, started, last = unpack(stored)
if not state then return not_found() end
if state == 'running' and assignment == ARGV[3] then return {tonumber(meta('epoch')), meta('search')} end
if state ~= 'queued' then return refuse('TREE_REFUSED', state, 'it cannot be assigned') end
-- one that has run is assigned even so: its new owner holds the vote over what has finished
if last == '0' and milliseconds(deadline) <= now then
  return refuse('TREE_REFUSED', state, 'its deadline has passed')
end

local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'state', 'running', 'worker', ARGV[1], 'assignment', ARGV[3], 'seq', 0,
  'lease', seconds(now + milliseconds(ARGV[2])), 'queue_entry', '', 'started', started or seconds(now))
emit('type', 'tree', 'from', 'queued', 'to', 'running', 'reason', 'assigned', 'worker', ARGV[1], 'epoch', epoch)
return {epoch, meta('search')}
