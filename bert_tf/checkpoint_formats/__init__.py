"""Checkpoint formats: a reader and a writer for each, and the table of tensor names."""
