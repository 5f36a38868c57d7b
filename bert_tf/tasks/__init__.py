"""Defines the fine-tuning tasks of the paper (section 4).

Each kind of task has a folder. The modules beside these folders contain code that several kinds share.
"""
