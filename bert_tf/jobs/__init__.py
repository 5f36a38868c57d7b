"""Divides long work into tasks, which run in processes, on Spark or on a GPU."""
