"""Compiles the training step for TPUs and GPUs that need not be present; counts memory, FLOPs, traffic and kernels."""
