"""Stores a frozen encoder's activations on disk, so that the encoder runs only once, even for many heads.

Paper: section 5.3 (feature-based approach).

Each split has its own folder. The files in this folder are the parts of the activations. Each part is a float16 NumPy
array that is written atomically, so a resumed run computes only the missing parts. The folder's name contains a hash of
everything that the activations depend on, such as the encoder's weights, the rows, the layers and the precision.

Letters: B rows of a batch, S sequence length, N rows of a split, P maximum number of tokens per row that the head
reads, K layers, H hidden size.
"""

import collections
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.checkpoints import variables_by_path
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning.batches import row_batches, row_columns
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.finetuning.row_plan import RowPlan, plan_evaluation
from bert_tf.finetuning.task import Split, Task
from bert_tf.jobs.progress import Progress
from bert_tf.tokenization import BertTokenizer

_VERSION = 1
_DTYPE = np.float16
# Number of tokens in a batch, including padding. Larger batches are not faster on a CPU.
_TOKENS_PER_BATCH = 4096
_PART_BYTES = 1 << 26
_ROWS_PER_CALL = 1024


@dataclasses.dataclass(frozen=True)
class StoredActivations:
    """The activations of a split's rows.

    Attributes:
      counts: int64 [N], number of tokens that the head reads in each row.
      parts: paths of the parts.
      part_of: int64 [N], for each row, the index of its part in `parts`.
      starts: int64 [N], for each row, the index of its first token in the part.
      shape: shape of a row's activations, (P, K, H).
    """

    counts: np.ndarray
    parts: tuple[str, ...]
    part_of: np.ndarray
    starts: np.ndarray
    shape: tuple[int, int, int]

    def of_rows(self, rows: tf.Tensor) -> tf.Tensor:
        """Reads the activations of rows. The function can be called in the graph of a dataset.

        Args:
          rows: integer [B], indices of rows.

        Returns:
          The activations, float16 [B, P, K, H]; 0 at padding.
        """
        found = tf.numpy_function(self._read, [rows], tf.float16)
        return tf.ensure_shape(found, [rows.shape[0], *self.shape])

    def _read(self, rows: np.ndarray) -> np.ndarray:
        found = np.zeros((len(rows), *self.shape), _DTYPE)
        for place, row in enumerate(rows):
            start, count = self.starts[row], self.counts[row]
            found[place, :count] = self._arrays[self.part_of[row]][start : start + count]
        return found

    @functools.cached_property
    def _arrays(self) -> list[np.ndarray]:
        return [_open(path) for path in self.parts]


def with_activations(
    split: Split, name: str, task: Task, model: FineTunedBert, tokenizer: BertTokenizer, max_seq_length: int,
    strategy: tf.distribute.Strategy,
) -> Split:  # fmt: skip
    """Returns a split with the activations of its rows; reuses activations that are already on disk.

    Args:
      split: a split with N rows.
      name: name of the split, for the folder's name and for messages.
      task: the task; its `activations_dir` is the parent of the split's folder.
      model: a model whose encoder has its final weights.
      tokenizer: provides the ids of special tokens.
      max_seq_length: sequence length, S.
      strategy: strategy that runs the encoder.

    Returns:
      The split with `activations`. The `lengths` of this split are the numbers of tokens that the head reads.

    Raises:
      InputError: the disk is full or read-only.
    """
    inputs = _Inputs(split, task, tokenizer, max_seq_length)
    rows = max(1, _TOKENS_PER_BATCH // max_seq_length)
    shares = strategy.num_replicas_in_sync
    plan = plan_evaluation(
        split.lengths, batch_size=rows * shares, max_seq_length=max_seq_length, shares=shares, packed_for=model.config
    )
    counts, digest = inputs.counts_and_digest()
    folder = os.path.join(task.activations_dir, f"{name}-{_key(model, plan, digest, max_seq_length)}")
    shape = (int(counts.max()), len(model.task_head.layers), model.config.hidden_size)
    parts = _Parts(folder, plan, shares, counts, shape)
    try:
        _compute(parts, inputs, model, strategy, name)
    except (OSError, tf.errors.OpError) as error:
        raise InputError(
            f"{folder}: the activations cannot be written ({' '.join(str(error).split())}); they take "
            f"{parts.size / 1e9:.2f} GB; give another --activations_dir, and run again to resume"
        ) from error
    return dataclasses.replace(split, activations=parts.stored(), lengths=counts.astype(np.int32))


@dataclasses.dataclass(frozen=True)
class _Inputs:
    """The rows of a split as the encoder reads them."""

    split: Split
    task: Task
    tokenizer: BertTokenizer
    max_seq_length: int

    def counts_and_digest(self) -> tuple[np.ndarray, str]:
        """Returns the number of tokens that the head reads in each row, int64 [N], and a hash of all inputs."""

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
        def of(rows):
            columns = {name: tf.gather(column, rows) for name, column in self.split.columns.items()}
            found = self.task.model_inputs(columns, self.tokenizer, self.max_seq_length)
            names = ("input_ids", "input_mask", "segment_ids", "read_positions", "read_mask")
            return tf.reduce_sum(found["read_mask"], axis=1), tf.stack([found[name] for name in names])

        counts, digest = [np.zeros(0, np.int64)], hashlib.sha256()
        for begin in range(0, len(self.split), _ROWS_PER_CALL):
            read, inputs = of(tf.range(begin, min(begin + _ROWS_PER_CALL, len(self.split))))
            counts.append(read.numpy().astype(np.int64))
            digest.update(inputs.numpy().astype("<i4").tobytes())
        return np.concatenate(counts), digest.hexdigest()

    def batches(self, plan: RowPlan, shares: int, start: int, input_context: tf.distribute.InputContext | None):
        """Returns the dataset of a plan's batches, without the first `start` batches."""
        return row_batches(
            self.split, self.task, self.tokenizer, plan, max_seq_length=self.max_seq_length, shares=shares,
            start=start, input_context=input_context,
        )  # fmt: skip


class _Parts:
    """Divides the rows of a split into parts; each part has the rows of several consecutive batches.

    Attributes:
      folder: folder of the parts.
      plan: plan of all batches.
      shares: number of equal shares of a batch, one for each replica.
      counts: see `StoredActivations`.
      size: size of all parts, in bytes.
      longest: maximum number of tokens per row that the head reads, P.
      rows: indices of the rows of each part, ascending.
    """

    def __init__(self, folder: str, plan: RowPlan, shares: int, counts: np.ndarray, shape: tuple[int, int, int]):
        self.folder, self.plan, self.shares, self.counts, self._shape = folder, plan, shares, counts, shape
        self.longest = shape[0]
        batches = plan.ids.reshape(-1, shares * plan.ids.shape[1])
        token_bytes = shape[1] * shape[2] * np.dtype(_DTYPE).itemsize
        self.size = int(counts.sum()) * token_bytes
        self._every = max(1, _PART_BYTES * len(batches) // max(1, self.size))  # batches per part
        groups = [batches[begin : begin + self._every].ravel() for begin in range(0, len(batches), self._every)]
        self.rows = [np.sort(group[group < len(counts)]) for group in groups]

    def __len__(self) -> int:
        return len(self.rows)

    def path(self, number: int) -> str:
        """Returns the path of a part."""
        return os.path.join(self.folder, f"part-{number:05d}-of-{len(self):05d}.npy")

    def is_there(self, number: int) -> bool:
        """Returns whether a part exists, is readable and has the right shape."""
        path = self.path(number)
        if not tf.io.gfile.exists(path):
            return False
        try:
            return _open(path).shape == self.array_shape(number)
        except (ValueError, EOFError, OSError):
            return False

    def array_shape(self, number: int) -> tuple[int, int, int]:
        """Returns the shape of a part: (tokens, K, H)."""
        return int(self.counts[self.rows[number]].sum()), *self._shape[1:]

    def batches_of(self, number: int) -> range:
        """Returns the indices of the batches whose rows are in a part."""
        total = len(self.plan.ids) // self.shares
        return range(number * self._every, min(total, (number + 1) * self._every))

    def starts(self, number: int) -> np.ndarray:
        """Returns, for each row of a part, the index of the row's first token in the part."""
        counts = self.counts[self.rows[number]]
        return np.cumsum(counts) - counts

    def stored(self) -> StoredActivations:
        """Returns the stored activations; all parts must exist."""
        part_of, starts = np.zeros_like(self.counts), np.zeros_like(self.counts)
        for number, rows in enumerate(self.rows):
            part_of[rows], starts[rows] = number, self.starts(number)
        paths = tuple(map(self.path, range(len(self))))
        return StoredActivations(self.counts, paths, part_of, starts, self._shape)


def _compute(parts: _Parts, inputs: _Inputs, model: FineTunedBert, strategy: tf.distribute.Strategy, name: str) -> None:
    missing = [number for number in range(len(parts)) if not parts.is_there(number)]
    if not missing:
        logging.info("%s: the encoder's outputs are already in %s, and are not computed again", name, parts.folder)
        return
    logging.info("%s: running the encoder once over %d rows; its outputs (%.2f GB) are kept in %s", name,
                 len(parts.counts), parts.size / 1e9, parts.folder)  # fmt: skip
    tf.io.gfile.makedirs(parts.folder)
    rows_left = sum(len(parts.rows[number]) for number in missing)
    with Progress(f"running the encoder over {name}", len(parts.counts), "rows", compiles=True) as shown:
        shown.start_at(len(parts.counts) - rows_left)
        results = _results(parts, inputs, model, strategy, missing[0])
        for number in range(missing[0], len(parts)):
            # Skip an existing part after a missing part. This case occurs only if a file was deleted or damaged.
            batches = itertools.islice(results, len(parts.batches_of(number)))
            if number not in missing:
                collections.deque(batches, maxlen=0)
                continue
            _write(parts, number, batches, shown)


def _results(
    parts: _Parts, inputs: _Inputs, model: FineTunedBert, strategy: tf.distribute.Strategy, first: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the row indices [B] and the activations [B, P, K, H] of each batch; begins with part number `first`."""
    longest = parts.longest

    @tf.function
    def step(batch):
        def on_replica(local):
            found = model.activations(local)[:, :longest]
            return row_columns(local)["row_ids"], tf.cast(found, _DTYPE)

        return [strategy.gather(values, axis=0) for values in strategy.run(on_replica, args=(batch,))]

    start = parts.batches_of(first).start
    dataset = strategy.distribute_datasets_from_function(
        lambda context: inputs.batches(parts.plan, parts.shares, start, context)
    )
    for batch in dataset:
        row_ids, found = (values.numpy() for values in step(batch))
        yield row_ids, found


def _write(parts: _Parts, number: int, batches: Iterable[tuple[np.ndarray, np.ndarray]], shown: Progress) -> None:
    whole = np.zeros(parts.array_shape(number), _DTYPE)
    starts = dict(zip(parts.rows[number].tolist(), parts.starts(number).tolist(), strict=True))
    for row_ids, found in batches:
        for row, values in zip(row_ids.tolist(), found, strict=True):
            if row in starts:
                count = parts.counts[row]
                whole[starts[row] : starts[row] + count] = values[:count]
        shown.update(sum(row in starts for row in row_ids.tolist()))
    with storage.atomic_path(parts.path(number)) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        data = io.BytesIO()
        np.save(data, whole)
        file.write(data.getvalue())


def _open(path: str) -> np.ndarray:
    """Opens a part. A local file is memory-mapped, so that only the values that are read need memory."""
    if "://" not in path:
        return np.load(path, mmap_mode="r")
    with tf.io.gfile.GFile(path, "rb") as file:
        return np.load(io.BytesIO(file.read()))


def _key(model: FineTunedBert, plan: RowPlan, digest: str, max_seq_length: int) -> str:
    weights = hashlib.sha256()
    for name, variable in sorted(variables_by_path(model.encoder).items()):
        # The activations do not depend on the pooler, which has random weights if the checkpoint lacks a pooler.
        if name.startswith("pooler/"):
            continue
        weights.update(name.encode() + tf.convert_to_tensor(variable).numpy().tobytes())
    facts = {
        "version": _VERSION,
        "weights": weights.hexdigest(),
        "config": dataclasses.asdict(model.config),
        "layers": list(model.task_head.layers),
        "dtype": keras.mixed_precision.global_policy().name,
        "inputs": digest,
        "max_seq_length": max_seq_length,
        "rows of batches": hashlib.sha256(plan.ids.tobytes()).hexdigest(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
