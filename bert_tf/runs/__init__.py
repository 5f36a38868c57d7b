"""A run's folder: the run's identity and records, its checkpoints, and the watch for checkpoints of other processes."""
