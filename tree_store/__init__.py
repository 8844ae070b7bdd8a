"""The Tree View in Redis or Valkey: state machines, atomic transitions, event feeds, leases."""
