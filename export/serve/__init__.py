"""A local model server with TF Serving's flags, REST calls, gRPC calls and answers."""
