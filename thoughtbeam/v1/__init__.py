"""Generated gRPC stubs; the source is protos/thoughtbeam/v1, the command `make protos`."""
