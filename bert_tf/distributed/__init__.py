"""Strategies, and training on several machines."""
