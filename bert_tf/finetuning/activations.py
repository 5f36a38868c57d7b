"""Stores a frozen encoder's activations on disk, so that the encoder runs only once, even for many heads.

Paper: section 5.3 (feature-based approach).

Each split has one file, a float16 NumPy array that is written atomically and memory-mapped. The file's name contains
a hash of everything that the activations depend on, such as the encoder's weights, the rows, the layers and the
precision.

Letters: P maximum number of tokens per row that the head reads, K layers.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.checkpoints import digest_of_weights, variables_by_path
from bert_tf.core import identity, storage
from bert_tf.core.errors import InputError
from bert_tf.core.progress_bar import ProgressBar
from bert_tf.finetuning.batches import one_pass, row_columns
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.finetuning.row_plan import RowPlan
from bert_tf.finetuning.stored_rows import StoredRows
from bert_tf.finetuning.task import Split, Task
from bert_tf.tokenization import BertTokenizer

_VERSION = 2
_DTYPE = np.float16


def with_activations(
    split: Split, name: str, task: Task, model: FineTunedBert, tokenizer: BertTokenizer, max_seq_length: int,
    strategy: tf.distribute.Strategy,
) -> Split:  # fmt: skip
    """Returns a split with the activations of its rows; reuses activations that are already on disk.
    `split`: a split with N rows.
    `name`: name of the split, for the folder's name and for messages.
    `task`: the task; its `activations_dir` is the parent of the split's folder.
    `model`: a model whose encoder has its final weights.
    `tokenizer`: provides the ids of special tokens.
    `max_seq_length`: sequence length, S.
    The result is the split with `activations`. The `lengths` of this split are the numbers of tokens that the head
    reads."""
    plan, make_batches = one_pass(split, task, tokenizer, max_seq_length, strategy, model.config)
    counts = task.output_counts(split)
    path = os.path.join(task.activations_dir, f"{name}-{_key(model, plan, split, tokenizer, max_seq_length)}.npy")
    order = plan.ids.ravel()
    order = order[order < len(counts)]
    starts = np.zeros_like(counts)
    starts[order] = np.cumsum(counts[order]) - counts[order]
    shape = (int(counts.max()), len(model.task_head.layers), model.config.hidden_size)
    stored = StoredRows(path, counts, starts, shape, _DTYPE)
    if stored.is_there():
        logging.info("%s: the encoder's outputs are already in %s, and are not computed again", name, path)
    else:
        try:
            _write(stored, order, _results(stored, make_batches, model, strategy), name)
        except (OSError, tf.errors.OpError) as error:
            raise InputError(
                f"{path}: the activations cannot be written ({' '.join(str(error).split())}); they take "
                f"{stored.size / 1e9:.2f} GB; give another --activations_dir"
            ) from error
    return dataclasses.replace(split, activations=stored, lengths=counts.astype(np.int32))


def _results(
    stored: StoredRows, make_batches: Callable, model: FineTunedBert, strategy: tf.distribute.Strategy
) -> Iterator[dict[int, np.ndarray]]:
    """Yields, for each batch, the activations [P, K, H] of its rows by the rows' indices."""

    @tf.function
    def step(batch):
        def on_replica(local):
            values = model.activations(local)[:, : stored.shape[0]]
            return row_columns(local)["row_ids"], tf.cast(values, _DTYPE)

        return [strategy.gather(values, axis=0) for values in strategy.run(on_replica, args=(batch,))]

    for batch in strategy.distribute_datasets_from_function(make_batches):
        row_ids, of_rows = (values.numpy() for values in step(batch))
        yield dict(zip(row_ids.tolist(), of_rows, strict=True))


def _write(stored: StoredRows, order: np.ndarray, results: Iterator[dict[int, np.ndarray]], name: str) -> None:
    """Writes the activations of all rows in the order of their starts, which is the order of the batches."""
    logging.info("%s: running the encoder once over %d rows; its outputs (%.2f GB) are kept in %s", name, len(order),
                 stored.size / 1e9, stored.path)  # fmt: skip
    tf.io.gfile.makedirs(os.path.dirname(stored.path))
    batch: dict[int, np.ndarray] = {}
    with (
        ProgressBar(f"running the encoder over {name}", len(order), "rows", compiles=True) as shown,
        storage.atomic_path(stored.path) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as file,
    ):
        stored.write_header(file)
        for row in order.tolist():
            while row not in batch:
                batch = next(results)
                shown.update(sum(each < len(order) for each in batch))
            file.write(batch[row][: stored.counts[row]].tobytes())


def _key(model: FineTunedBert, plan: RowPlan, split: Split, tokenizer: BertTokenizer, max_seq_length: int) -> str:
    # The activations do not depend on the pooler, which has random weights if the checkpoint lacks a pooler.
    read = {name: v for name, v in variables_by_path(model.encoder).items() if not name.startswith("pooler/")}
    facts = {
        "version": _VERSION,
        "weights": digest_of_weights(read),
        "config": dataclasses.asdict(model.config),
        "layers": list(model.task_head.layers),
        "dtype": keras.mixed_precision.global_policy().name,
        "rows": split.digest(),
        "form of rows": tokenizer.row_form,
        "max_seq_length": max_seq_length,
        "rows of batches": hashlib.sha256(plan.ids.tobytes()).hexdigest(),
    }
    return identity.id_of(facts)
