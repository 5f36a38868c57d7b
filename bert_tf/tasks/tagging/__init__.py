"""Predicts a tag for each word (paper: section 5.3)."""
