"""Encodes the examples of a split.

Letters: N rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.task import Columns, Split, Task
from bert_tf.tokenization import BertTokenizer

_ROWS_PER_CALL = 4096


def encoded_split(task: Task, examples: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int) -> Split:
    columns = dict(task.encode(examples, tokenizer, max_seq_length))
    example_ids = np.asarray(columns.pop("example_ids", np.arange(len(examples))), np.int64)
    columns = {
        name: column if isinstance(column, tf.RaggedTensor) else tf.convert_to_tensor(column)
        for name, column in columns.items()
    }
    lengths = _lengths(task, columns, len(example_ids), tokenizer, max_seq_length)
    return Split(examples, columns, example_ids, lengths, tokenizer)


def _lengths(task: Task, columns: Columns, count: int, tokenizer: BertTokenizer, max_seq_length: int) -> np.ndarray:
    parts = [np.zeros(0, np.int32)]
    for begin in range(0, count, _ROWS_PER_CALL):
        rows = {name: column[begin : begin + _ROWS_PER_CALL] for name, column in columns.items()}
        inputs = task.model_inputs(rows, tokenizer, max_seq_length)
        parts.append(tf.reduce_sum(inputs["input_mask"], axis=1).numpy())
    return np.concatenate(parts)
