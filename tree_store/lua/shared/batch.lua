-- One write of a running tree's owner. Needs tree.lua and nodes.lua.
--   ARGV[1] epoch  [2] seq  [3] batch (JSON, see batches.py)  [4] the policy's state, or '' when it has not changed
--   ARGV[5..] what is appended, in the order of the keys

local FIRST_APPEND = 5

-- Fencing and order. Returns an error reply, 0 when the batch was applied before, nil when it is the next one.
local function fence()
  local stored = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'state')
  local epoch, last, state = stored[1], tonumber(stored[2]), stored[3]
  if not epoch then return not_found() end
  if epoch ~= ARGV[1] then
    return refuse('STALE_EPOCH', 'epoch', ARGV[1], 'has ended, the tree is at', epoch)
  end
  local seq = tonumber(ARGV[2])
  if seq <= last then return 0 end
  if state ~= 'running' then return refuse('STALE_EPOCH', 'the tree is no longer running but', state) end
  if seq ~= last + 1 then return refuse('SEQUENCE_GAP', 'seq', ARGV[2], 'follows', last) end
end

local function write_rounds(rounds, expires)
  for _, round in ipairs(rounds) do
    redis.call('XADD', KEYS[4], '*', unpack(round))
    emit('type', 'round', unpack(round))
  end
  redis.call('PEXPIREAT', KEYS[4], expires)
  count('rounds', #rounds)
end

local function emit_progress()
  local entry = {'type', 'progress'}
  local function add(name)
    entry[#entry + 1], entry[#entry + 2] = name, meta(name)
  end
  for _, name in ipairs(COUNTERS) do add(name) end
  for _, name in ipairs({'prompt', 'generated', 'recomputed'}) do add(name) end
  emit(unpack(entry))
end

-- Writes a batch whose nodes check_nodes let pass.
local function write_batch(batch)
  local expires = string.format('%.0f', milliseconds(meta('expires')))
  write_nodes(batch.nodes, FIRST_APPEND)
  if batch.rounds then write_rounds(batch.rounds, expires) end
  if ARGV[4] ~= '' then redis.call('SET', KEYS[3], ARGV[4], 'PXAT', expires) end
  write_counters()
  redis.call('HSET', KEYS[1], 'seq', ARGV[2], unpack(batch.fields))
  if batch.progress then emit_progress() end
end
