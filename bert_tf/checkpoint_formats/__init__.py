"""Checkpoint formats: one reader and one writer each, and the names that tensors have in them."""
