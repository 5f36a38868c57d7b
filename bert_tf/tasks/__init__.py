"""Defines the fine-tuning tasks of the paper (section 4).

Each kind of task has a folder. The modules beside the folders are code that all kinds share.
"""
