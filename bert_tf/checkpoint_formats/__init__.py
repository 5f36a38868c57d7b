"""Checkpoint formats: a reader and a writer for each format, and the table of tensor names."""
