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

local feed -- of this script: {time and number of the newest entry, entries that are kept}

local function read_feed()
  local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
  local time, number = string.match(newest and newest[1] or '0-0', '(%d+)-(%d+)')
  return {time = tonumber(time), number = tonumber(number), kept = meta('max_events')}
end

-- One entry of the feed, given as field, value, …. Its id is <milliseconds>-<number>, the numbers counting from
-- 1 without a gap: a reader sees by them whether entries were trimmed. Times never go back, whatever the clock does.
local function emit(...)
  feed = feed or read_feed()
  feed.time, feed.number = math.max(now, feed.time), feed.number + 1
  redis.call('XADD', KEYS[2], 'MAXLEN', '=', feed.kept, string.format('%.0f-%d', feed.time, feed.number), ...)
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
