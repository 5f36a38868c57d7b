"""Long work, cut into tasks for processes, Spark or a GPU."""
