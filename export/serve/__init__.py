"""A local model server with the same flags, REST and gRPC calls, and answers as TF Serving."""
