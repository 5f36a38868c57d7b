"""Converts strings to the rows that models read: splits words, masks tokens, and packs [CLS] A [SEP] B [SEP]."""
