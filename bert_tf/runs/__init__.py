"""What a run's folder is: its identity, its checkpoints, and following another process's run."""
