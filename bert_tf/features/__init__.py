"""Vectors of texts from a frozen encoder (paper: section 5.3)."""
