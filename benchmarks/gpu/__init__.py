"""Times the pre-training step on a GPU that TensorFlow cannot reach, beside Hugging Face's on PyTorch."""
