"""A local model server with TF Serving's contract: the same flags, REST and gRPC calls, and answers."""
