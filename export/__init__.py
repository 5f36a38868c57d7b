"""Exports models as SavedModels that take raw strings, and serves them."""
