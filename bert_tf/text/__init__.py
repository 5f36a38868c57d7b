"""Converts strings to the rows that models read: splits text into words, masks tokens, packs [CLS] A [SEP] B [SEP]."""
