"""Compiles the training step for TPUs without a TPU: memory, FLOPs and memory traffic."""
