"""The record format shared by data generation and training: its schema, writer and reader."""
