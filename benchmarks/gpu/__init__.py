"""Times the pre-training step and Hugging Face's step in PyTorch on a GPU that TensorFlow cannot reach."""
