"""Converts strings to model rows: word splitting, Unicode table, masking, and [CLS] A [SEP] B [SEP] packing."""
