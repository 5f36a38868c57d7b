"""Exports models of bert_tf as SavedModels that take raw strings, and serves them."""
