-- What every script of a tree needs: the clock, refusals, the tree's hash (KEYS[1]) and feed (KEYS[2]).
-- Times are kept as decimal seconds, for people; here they are integer milliseconds.

local RETENTION = 24 * 3600 * 1000 -- as in keys.py
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function seconds(milliseconds)
  return string.format('%.3f', milliseconds / 1000)
end

local function milliseconds(text)
  return math.floor(tonumber(text) * 1000 + 0.5)
end

-- Codes: NOT_FOUND, REUSED, STALE_EPOCH, SEQUENCE_GAP, TREE_REFUSED, NODE_REFUSED, OPEN_NODES (see errors.py).
local function refuse(code, ...)
  return redis.error_reply(table.concat({code, ...}, ' '))
end

local function not_found()
  return refuse('NOT_FOUND', string.match(KEYS[1], '{(.-)}'))
end

local function meta(name)
  return redis.call('HGET', KEYS[1], name)
end

-- One entry of the feed, given as field, value, …; creates the stream with its expiry.
local function emit(...)
  redis.call('XADD', KEYS[2], '*', ...)
end

-- Sets the expiry of the keys that this script was given; those that do not exist are left alone.
local function expire_keys(first, last, at)
  for i = first, last do
    redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', at))
  end
end

-- Hands a running tree back to the queue. Returns 1 when its cancellation was asked for, else 0.
local function back_to_queue(reason)
  redis.call('HSET', KEYS[1], 'state', 'queued', 'lease', '', 'queue_entry', '')
  emit('type', 'tree', 'from', 'running', 'to', 'queued', 'reason', reason)
  return tonumber(meta('cancel_requested'))
end
