"""What every process needs: logs, gRPC servers and channels, errors on the wire. No domain logic."""
