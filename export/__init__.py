"""Exports models of bert_tf as SavedModels that take raw strings, and serves them."""

# `bert_tf.core.installation` looks for the word "bert_tf" in the first line of this file.
