"""Compiles the training step for TPUs and GPUs without one: memory, FLOPs, memory traffic, and kernels."""
