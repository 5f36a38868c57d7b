"""Compiles the training step for absent TPUs and GPUs: memory, FLOPs, memory traffic and kernels."""
