"""A run's folder: its identity, its records, its checkpoints, and the new checkpoints that another process saves."""
