"""Compiles the training step for absent TPUs and GPUs, and counts its memory, FLOPs, memory traffic and kernels."""
