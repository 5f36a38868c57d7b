"""Predicts classes, scores or sets of labels for one or two texts (paper: section 4.1)."""
