"""Computes vectors of texts with a frozen encoder (paper: section 5.3)."""
