"""The front door: checks requests, queues them, hands trees to decoder workers by credit, streams results."""
