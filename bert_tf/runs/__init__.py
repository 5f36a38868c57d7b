"""A run's folder: its identity, its checkpoints, and the new checkpoints of another process."""
