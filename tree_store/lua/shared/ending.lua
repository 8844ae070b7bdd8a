-- The end of a tree. Needs tree.lua and nodes.lua. An ending is {state, fields} and perhaps a reason.

-- Every node must be accounted for once the checked changes are written. Returns an error reply, or nil.
local function check_accounting()
  local total = {}
  for _, name in ipairs(COUNTERS) do total[name] = tonumber(meta(name)) + delta[name] end
  local ended = total.finished + total.pruned + total.cancelled
  if total.nodes ~= total.roots + total.branches or total.nodes ~= ended then
    return refuse('OPEN_NODES', meta('state'), ended, 'of', total.nodes, 'nodes have ended')
  end
end

-- Takes the tree to a final state. From here on its keys live for RETENTION;
-- those of the nodes follow by retain.lua, and keep the expiry of their creation should that never run.
local function end_tree(ending)
  local from, expires = meta('state'), now + RETENTION
  redis.call('HSET', KEYS[1], 'state', ending.state, 'ended', seconds(now), 'expires', seconds(expires),
    'lease', '', unpack(ending.fields))
  local why = ending.reason and {'reason', ending.reason} or {}
  emit('type', 'tree', 'from', from, 'to', ending.state, unpack(why))
  expire_keys(1, FIRST_NODE_KEY - 1, expires)
end

-- Ends a tree without its owner's last batch; nodes that still count are cancelled with it.
local function end_early(batch)
  local refused = check_nodes(batch.nodes) or check_accounting()
  if refused then return refused end
  write_nodes(batch.nodes, #ARGV + 1) -- nothing is appended
  write_counters()
  end_tree(batch.ending)
  return 1
end
