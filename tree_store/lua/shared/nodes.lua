-- Changes of nodes: first all are checked against what is stored, then all are written.
-- Needs tree.lua, and keys laid out as
--   KEYS[1] meta  [2] events  [3] policy  [4] rounds  [5] outcome  [6..12] state:<s> in the order of STATES
--   KEYS[13..] for each change: node:<n>, then the keys named by its `appends`
-- A change is what batches.py makes of a NodeChange (model.py).

local STATES = {'pending', 'live', 'held', 'ghost', 'finished', 'pruned', 'cancelled'}
local FIRST_STATE_KEY = 6
local FIRST_NODE_KEY = FIRST_STATE_KEY + #STATES
local COUNTERS = {'nodes', 'roots', 'branches', 'rounds', 'thoughts', 'evictions'}
for _, state in ipairs(STATES) do COUNTERS[#COUNTERS + 1] = state end
local UNSCORED = '-1' -- sort value in the state zsets, as in keys.py
local THOUGHT_BYTES = 16 -- as in packing.py

local STEPS = {
  none = {pending = true},
  pending = {live = true, pruned = true, cancelled = true},
  live = {pending = true, held = true, ghost = true, finished = true, pruned = true, cancelled = true},
  held = {pending = true, pruned = true, cancelled = true},
  ghost = {pending = true, pruned = true, cancelled = true},
  finished = {}, pruned = {}, cancelled = {},
}

-- What the changes add to each counter.
local delta = {}
for _, name in ipairs(COUNTERS) do delta[name] = 0 end

local function count(name, by)
  delta[name] = delta[name] + by
end

-- Walks one change's path from the stored state. Returns an error reply, or nil.
local function walk(change)
  local stored = redis.call('HMGET', change.key, 'state', 'mean_score')
  local state = stored[1] or 'none'
  if state ~= (change.before or 'none') then
    return refuse('NODE_REFUSED', change.node, state, 'the change starts from ' .. (change.before or 'none'))
  end
  change.stored_mean = stored[2]
  for _, to in ipairs(change.path) do
    if not STEPS[state][to] then
      return refuse('NODE_REFUSED', change.node, state, 'no step to ' .. to)
    end
    if state ~= 'none' then count(state, -1) end
    count(to, 1)
    if to == 'ghost' then count('evictions', 1) end
    state = to
  end
  if state == 'none' then
    return refuse('NODE_REFUSED', change.node, state, 'a new node needs a first state')
  end
  change.state = state
end

-- Checks every change and sums up `delta`; writes nothing. Numbers of new nodes must go on from the last one
-- without a gap, and a parent must be older than its branch. Returns an error reply, or nil.
local function check_nodes(changes)
  local next_key, seen = FIRST_NODE_KEY, {}
  local known = tonumber(meta('nodes'))
  local newest = known
  for _, change in ipairs(changes) do
    change.key, change.first_append_key = KEYS[next_key], next_key + 1
    next_key = next_key + 1 + #change.appends
    if seen[change.node] then
      return refuse('NODE_REFUSED', change.node, 'none', 'it is changed twice in one batch')
    end
    seen[change.node] = true
    local refused = walk(change)
    if refused then return refused end
    if not change.before then
      if change.node <= known then
        return refuse('NODE_REFUSED', change.node, 'none', 'the next new node is ' .. known + 1)
      end
      if change.parent and not (change.parent >= 1 and change.parent < change.node) then
        return refuse('NODE_REFUSED', change.node, 'none', 'its parent cannot be ' .. change.parent)
      end
      count('nodes', 1)
      count(change.parent and 'branches' or 'roots', 1)
      newest = math.max(newest, change.node)
    end
  end
  if newest ~= known + delta.nodes then
    return refuse('NODE_REFUSED', newest, 'none', 'the next new node is ' .. known + 1)
  end
end

-- Calls a variadic command in chunks that Lua's stack can hold.
local function call_chunked(command, key, values)
  for first = 1, #values, 1000 do
    redis.call(command, key, unpack(values, first, math.min(first + 999, #values)))
  end
end

local function emit_path(change)
  local from = change.before
  for i, to in ipairs(change.path) do
    local entry = {'type', 'node', 'node', change.node}
    local function add(name, value)
      entry[#entry + 1], entry[#entry + 2] = name, value
    end
    if from then add('from', from) end
    add('to', to)
    if not from and change.parent then add('parent', change.parent) end
    if i == #change.path and change.reason then add('reason', change.reason) end
    emit(unpack(entry))
    from = to
  end
end

local function append(change, next_append, expires)
  for i, name in ipairs(change.appends) do
    local key, piece = KEYS[change.first_append_key + i - 1], ARGV[next_append + i - 1]
    local length = redis.call('APPEND', key, piece)
    if length == #piece then redis.call('PEXPIREAT', key, expires) end
    if name == 'thoughts' then count('thoughts', #piece / THOUGHT_BYTES) end
  end
end

local function write_hash(change, expires)
  local fields = {'state', change.state}
  local function add(name, value)
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
  if not change.before then
    if change.parent then add('parent', change.parent) end
    add('branch_position', change.branch_position)
    add('total_tokens', change.branch_position)
    for _, name in ipairs({'unique_tokens', 'thoughts', 'evictions'}) do add(name, 0) end
  end
  if change.mean_score then add('mean_score', change.mean_score) end
  for _, value in ipairs(change.fields) do fields[#fields + 1] = value end
  redis.call('HSET', change.key, unpack(fields))
  if not change.before then redis.call('PEXPIREAT', change.key, expires) end
  for _, to in ipairs(change.path) do
    if to == 'ghost' then redis.call('HINCRBY', change.key, 'evictions', 1) end
  end
end

-- Moves nodes between the state zsets, one command per zset and direction.
local function write_index(changes, expires)
  local leave, enter = {}, {}
  for _, state in ipairs(STATES) do leave[state], enter[state] = {}, {} end
  for _, change in ipairs(changes) do
    local moved = change.state ~= change.before
    if moved and change.before then table.insert(leave[change.before], change.node) end
    if moved or change.mean_score then
      table.insert(enter[change.state], change.mean_score or change.stored_mean or UNSCORED)
      table.insert(enter[change.state], change.node)
    end
  end
  for i, state in ipairs(STATES) do
    local key = KEYS[FIRST_STATE_KEY + i - 1]
    call_chunked('ZREM', key, leave[state])
    if #enter[state] > 0 then
      call_chunked('ZADD', key, enter[state])
      redis.call('PEXPIREAT', key, expires)
    end
  end
end

-- Writes changes that check_nodes let pass. next_append: index in ARGV of the first value to append.
local function write_nodes(changes, next_append)
  local expires = string.format('%.0f', milliseconds(meta('expires')))
  for _, change in ipairs(changes) do
    append(change, next_append, expires)
    next_append = next_append + #change.appends
    write_hash(change, expires)
    emit_path(change)
  end
  write_index(changes, expires)
end

local function write_counters()
  for name, by in pairs(delta) do
    if by ~= 0 then redis.call('HINCRBY', KEYS[1], name, by) end
  end
end
