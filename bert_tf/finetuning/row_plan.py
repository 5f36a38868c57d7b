"""Plans the rows of each batch, and their positions if several rows share a packed row.

The plan of a whole run is made before the run, so that all batches have the same static shape. The batch size is a
number of examples: the rows of an example stay in one batch. For instance, a softmax compares the choices of an
example, so the rows of these choices must be in the same batch. If the rows of a task may be apart, each row counts as
an example here. A slice is what one device computes at once: a per-replica batch, a micro-batch or a part of either.

Letters: B examples of a batch, G examples, M total number of slices in all batches, U examples of a slice, E rows of a
slice, R packed rows of a slice.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.finetuning.row_order import training_order
from bert_tf.input import packed_rows

# Maximum W. Attention computes W^2 scores, so longer packed rows would cost more time than the reduced padding saves.
_LONGEST = 512
_WIDTHS = (64, 80, 96, 112, 128, 192, 256, 384, _LONGEST)
_SAMPLED_SLICES = 64
_SAMPLED_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class PackedShape:
    """The static shape of a slice's packed rows."""

    rows: int  # number of packed rows, R
    width: int  # length of packed rows, W
    sequences: int  # maximum number of rows in a packed row, K


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """The plan of all batches."""

    ids: np.ndarray  # int32 [M, E], indices of rows; N for padding entries, which only fill the slice
    examples: int  # number of examples of a slice, U
    shape: PackedShape | None = None  # shape of the packed rows; None without packing
    # int32 [M, E, 3]; None without packing. The last axis has three values for each row: the index of its packed row in
    # the slice, its first position in the packed row, and its index among the rows of the packed row. The values of
    # padding entries are 0.
    places: np.ndarray | None = None


def plan_training(
    lengths: np.ndarray,
    *,
    batch_size: int,
    num_batches: int,
    slices: int = 1,
    seed: int = 0,
    packed_for: BertConfig | None = None,
    rows_per_example: np.ndarray | None = None,
) -> RowPlan:
    """Plans the batches of training.
    `lengths`: int [N], number of tokens of each row.
    `batch_size`: number of examples of a batch, B.
    `num_batches`: number of batches of the run.
    `slices`: number of equal slices of a batch: the product of the numbers of replicas, micro-batches and parts.
    `seed`: see `training_order`.
    `packed_for`: configuration of the model for which rows are packed; None for no packing.
    `rows_per_example`: see `Task.rows_per_example`."""
    example_lengths = lengths if rows_per_example is None else _sums(lengths, rows_per_example)
    order = training_order(example_lengths, batch_size, seed, num_batches * batch_size)
    examples = order.reshape(num_batches * slices, -1)
    if packed_for is None:
        return RowPlan(_rows_of(examples, rows_per_example), examples.shape[1])
    plans = []
    for dealt in (examples, _evened(examples, example_lengths, slices)) if slices > 1 else (examples,):
        ids = _rows_of(dealt, rows_per_example)
        width = _best_width(lengths, ids, _widths(lengths, packed_for), packed_for)
        plans.append(_placed(lengths, ids, dealt.shape[1], *_fit_all(lengths, ids, width), width))
    return min(plans, key=lambda plan: _cost(plan.shape.rows, plan.shape.width, packed_for))


def plan_evaluation(
    lengths: np.ndarray,
    *,
    batch_size: int,
    max_seq_length: int,
    slices: int = 1,
    packed_for: BertConfig | None = None,
    rows_per_example: np.ndarray | None = None,
) -> RowPlan:
    """Plans the batches of one pass over all rows. A packed batch has at most as many positions, including padding, as
    an unpacked batch.
    `lengths`: int [N], number of tokens of each row.
    `batch_size`: number of examples of an unpacked batch, B.
    `slices`: number of equal slices of a batch.
    `packed_for`: configuration of the model for which rows are packed; None for no packing.
    `rows_per_example`: see `Task.rows_per_example`."""
    count, size = len(lengths) if rows_per_example is None else len(rows_per_example), batch_size // slices
    if packed_for is None:
        padded = np.arange(count + -count % batch_size, dtype=np.int32)
        return RowPlan(_rows_of(np.minimum(padded, count).reshape(-1, size), rows_per_example), size)
    if rows_per_example is not None:
        return _plan_packed_examples(lengths, rows_per_example, size, max_seq_length, slices, packed_for)
    sample = np.random.default_rng(0).permutation(count)[:_SAMPLED_ROWS]
    candidates = [w for w in _widths(lengths, packed_for) if w <= size * max_seq_length] or [max_seq_length]
    width = _best_width(lengths, sample[np.newaxis], candidates, packed_for)
    row_of = _fit(lengths, width)
    total = int(row_of.max()) + 1
    # The longest rows are packed first, so the first packed rows have few rows. Shuffling the packed rows gives all
    # batches about the same number of rows.
    row_of = np.random.default_rng(0).permutation(total)[row_of]
    slice_rows = max(1, size * max_seq_length // width)
    num_batches = -(-total // (slice_rows * slices))
    slice_rows = -(-total // (num_batches * slices))
    slice_of = row_of // slice_rows
    order = np.argsort(slice_of, kind="stable")
    sizes = np.bincount(slice_of, minlength=num_batches * slices)
    taken = np.arange(sizes.max()) < sizes[:, np.newaxis]  # [M, E]
    ids = np.full(taken.shape, count, np.int32)
    rows = np.full(taken.shape, slice_rows, np.int32)
    ids[taken], rows[taken] = order, row_of[order] % slice_rows
    return _placed(lengths, ids, ids.shape[1], rows, slice_rows, width)


def _plan_packed_examples(
    lengths: np.ndarray, rows_per_example: np.ndarray, size: int, max_seq_length: int, slices: int, config: BertConfig
) -> RowPlan:
    """Plans one pass over examples whose rows stay together. A packed slice takes as many examples as fit without
    exceeding the size of an unpacked slice."""
    tokens, count = _sums(lengths, rows_per_example), len(rows_per_example)
    most = size * int(rows_per_example.max()) * max_seq_length
    # Begin with 95%, because rows hardly ever fill a slice to the last token.
    in_slice = max(size, min(int(0.95 * most / tokens.mean()), -(-count // slices)))
    while True:
        order = training_order(tokens, in_slice * slices, 0, count)
        padded = np.append(order, np.full(-count % (in_slice * slices), count, order.dtype))
        ids = _rows_of(padded.reshape(-1, in_slice), rows_per_example)
        width = _best_width(lengths, ids, _widths(lengths, config), config)
        rows, num_rows = _fit_all(lengths, ids, width)
        if num_rows * width <= most or in_slice == size:
            return _placed(lengths, ids, in_slice, rows, num_rows, width)
        in_slice = max(size, int(0.9 * in_slice))


def _evened(examples: np.ndarray, lengths: np.ndarray, slices: int) -> np.ndarray:
    """Balances the number of tokens between the slices of each batch. In each batch, the slice with the most tokens
    exchanges an example with the slice with the fewest tokens. Otherwise, a single slice with many tokens would
    determine the static shape of all slices."""
    examples = examples.copy()
    for batch in examples.reshape(-1, slices, examples.shape[1]):
        totals = lengths[batch].sum(axis=1)
        heavy, light = batch[totals.argmax()], batch[totals.argmin()]
        excess = lengths[heavy][:, np.newaxis] - lengths[light]  # [U, U]
        i, j = np.unravel_index(np.abs(2 * excess - (totals.max() - totals.min())).argmin(), excess.shape)
        if excess[i, j] > 0:
            heavy[i], light[j] = light[j], heavy[i]
    return examples


def _sums(lengths: np.ndarray, rows_per_example: np.ndarray) -> np.ndarray:
    """Returns the total length of each example's rows, int [G]."""
    return np.add.reduceat(lengths, np.cumsum(rows_per_example) - rows_per_example)


def _rows_of(examples: np.ndarray, rows_per_example: np.ndarray | None) -> np.ndarray:
    """Returns the indices of the rows of examples [M, U], in the order of the examples, int32 [M, E]."""
    if rows_per_example is None:
        return examples
    ends = np.cumsum(rows_per_example)
    sizes = np.append(rows_per_example, 0)[examples]  # [M, U]
    firsts = np.append(ends - rows_per_example, 0)[examples]
    totals = sizes.sum(axis=1)
    ids = np.full([len(examples), totals.max()], ends[-1], np.int32)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes.ravel()) - sizes.ravel(), sizes.ravel())
    ids[np.arange(ids.shape[1]) < totals[:, np.newaxis]] = np.repeat(firsts.ravel(), sizes.ravel()) + within
    return ids


def _widths(lengths: np.ndarray, config: BertConfig) -> list[int]:
    """Returns the possible lengths of packed rows; each length is at least the length of the longest row."""
    longest, limit = int(lengths.max()), config.max_position_embeddings
    shortest = min(longest + -longest % 16, limit)
    return [shortest, *(w for w in _WIDTHS if shortest < w <= min(limit, max(2 * longest, 128)))]


def _cost(rows: int, width: int, config: BertConfig) -> float:
    """Estimates the relative compute time of packed rows; because of attention, the time per token grows with W."""
    return rows * width * (1 + width / (2 * config.hidden_size))


def _fit(lengths: np.ndarray, width: int) -> np.ndarray:
    # Limit the number of rows in a packed row, because the last layer computes K positions of each packed row.
    most = 2 + 2 * -(-width // max(1, int(lengths.mean())))
    shape = packed_rows.RowShape(sequences=most, predictions=0)
    return packed_rows.best_fit(lengths, np.zeros_like(lengths), width, shape)


def _fit_all(lengths: np.ndarray, ids: np.ndarray, width: int) -> tuple[np.ndarray, int]:
    """Returns, for each row, the index of its packed row in the slice, int [M, E]; also returns R. The index of padding
    entries is R."""
    rows = np.full(ids.shape, -1)
    for number, of_slice in enumerate(ids):
        real = of_slice < len(lengths)
        if real.any():
            rows[number, real] = _fit(lengths[of_slice[real]], width)
    num_rows = int(rows.max()) + 1
    return np.where(rows < 0, num_rows, rows), num_rows


def _best_width(lengths: np.ndarray, ids: np.ndarray, widths: Sequence[int], config: BertConfig) -> int:
    """Returns the length of packed rows with the lowest cost for a sample of the slices. A sample is enough, because
    all batches except those that span two epochs have similar numbers of tokens."""
    sample = ids[np.unique(np.linspace(0, len(ids) - 1, _SAMPLED_SLICES).astype(int))]
    return min(widths, key=lambda width: _cost(_fit_all(lengths, sample, width)[1], width, config))


def _placed(
    lengths: np.ndarray, ids: np.ndarray, examples: int, rows: np.ndarray, num_rows: int, width: int
) -> RowPlan:
    """Returns a plan in which the rows of a packed row follow each other without gaps."""
    lengths = np.append(lengths, 0)
    order = np.argsort(rows, axis=1, kind="stable")
    sorted_rows = np.take_along_axis(rows, order, axis=1)
    begins = np.diff(sorted_rows, axis=1, prepend=-1) != 0
    # For each row, the number of tokens and the number of rows that precede it in the same packed row.
    before = np.zeros((*ids.shape, 2), np.int64)
    for index, sizes in enumerate((np.take_along_axis(lengths[ids], order, axis=1), np.ones_like(order))):
        total = np.cumsum(sizes, axis=1) - sizes
        before[:, :, index] = total - np.maximum.accumulate(np.where(begins, total, 0), axis=1)
    places = np.zeros((*ids.shape, 3), np.int32)
    places_sorted = np.concatenate([sorted_rows[:, :, np.newaxis], before], axis=2)
    np.put_along_axis(places, order[:, :, np.newaxis], places_sorted.astype(np.int32), axis=1)
    places[rows == num_rows] = 0
    return RowPlan(ids, examples, PackedShape(num_rows, width, int(places[:, :, 2].max()) + 1), places)
