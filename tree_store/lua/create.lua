#!lua
-- Creates a tree in `queued`. Repeated with the same digest it changes nothing.
-- KEYS[1] meta  [2] events  [3] deleted
-- ARGV[1] tree id  [2] digest  [3] a token unique to this creation: its repeat is answered as the first was
--     [4] deadline in seconds  [5..] further fields of the hash: name, value, …
-- Returns 1, or 0 when it exists already, or -1 while one of this id is being deleted.
--#include shared/tree.lua
--#include shared/nodes.lua

local stored = redis.call('HMGET', KEYS[1], 'digest', 'creation')
local digest, creation = unpack(stored)
if digest and digest ~= ARGV[2] then return refuse('REUSED', ARGV[1]) end
if digest then return creation == ARGV[3] and 1 or 0 end
if redis.call('EXISTS', KEYS[3]) == 1 then return -1 end

local expires = math.max(milliseconds(ARGV[4]), now) + RETENTION
redis.call('HSET', KEYS[1], 'tree_id', ARGV[1], 'digest', ARGV[2], 'creation', ARGV[3], 'deadline', ARGV[4],
  unpack(ARGV, 5))
redis.call('HSET', KEYS[1], 'state', 'queued', 'created', seconds(now), 'expires', seconds(expires),
  'epoch', 0, 'seq', 0, 'lease', '', 'cancel_requested', 0, 'queue_entry', '',
  'prompt', 0, 'generated', 0, 'recomputed', 0)
for _, name in ipairs(COUNTERS) do redis.call('HSET', KEYS[1], name, 0) end
emit('type', 'tree', 'to', 'queued')
expire_keys(1, 2, expires)
return 1
