"""Counts the kernels and the memory traffic of programs that compile_check compiled."""
