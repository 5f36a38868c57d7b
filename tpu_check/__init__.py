"""The training step compiled for TPUs without a TPU: what it needs of memory, arithmetic and memory traffic."""
