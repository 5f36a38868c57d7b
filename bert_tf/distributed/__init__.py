"""Distribution strategies, and training on several machines."""
