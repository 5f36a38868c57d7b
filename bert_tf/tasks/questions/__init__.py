"""Answers to questions as spans of a text (paper: sections 4.2 and 4.3)."""
