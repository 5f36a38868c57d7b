"""Answers questions about a context by a span of the context (paper: sections 4.2 and 4.3)."""
