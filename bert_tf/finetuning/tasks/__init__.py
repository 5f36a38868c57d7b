"""Fine-tuning tasks, a file per family."""
