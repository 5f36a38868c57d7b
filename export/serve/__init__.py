"""A local model server that keeps TF Serving's contract: the same flags, REST and gRPC calls, and answers."""
