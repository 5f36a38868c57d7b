"""Chooses one of several texts (paper: section 4.4)."""
