"""Long work, cut into tasks for the cores of a machine or a Spark cluster, that resumes after a kill."""
