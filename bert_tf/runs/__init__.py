"""A run's folder: the run's identity, records and checkpoints, and the new checkpoints that another process saves."""
