"""The record format of bert_tf, shared by data generation and training: its schema, writer and reader."""

# `bert_tf.core.installation` looks for the word "bert_tf" in the first line of this file.
