"""Strings to rows: word splitting, the Unicode table, masking, and [CLS] A [SEP] B [SEP]."""
