"""The record format of bert_tf, shared by data generation and training: its schema, writer and reader."""
