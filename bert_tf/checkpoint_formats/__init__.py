"""Checkpoint formats: a reader and a writer for each format, and a table of the tensor names in all formats."""
