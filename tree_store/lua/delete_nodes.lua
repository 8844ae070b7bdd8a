#!lua flags=allow-oom
-- Deletes keys of nodes, as long as their tree is being deleted: another of the same id may follow it.
-- KEYS[1] deleted  [2..] keys of nodes

if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('UNLINK', unpack(KEYS, 2)) end
return 1
