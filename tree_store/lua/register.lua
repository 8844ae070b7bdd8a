#!lua
-- Puts a tree on the list of all trees, by Redis' own clock; a repeat changes nothing.
-- KEYS[1] tb:trees   ARGV[1] tree id

local clock = redis.call('TIME')
return redis.call('ZADD', KEYS[1], 'NX', string.format('%d.%06d', clock[1], clock[2]), ARGV[1])
