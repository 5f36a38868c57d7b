"""Plans the rows of each batch, and their positions if several rows share a packed row.

The plan of a whole run is made before the run, so that all batches have the same static shape. The batch size is a
number of units. A unit is usually a row. A unit is an example if the rows of each example must stay together. For
example, a softmax compares the choices of an example, so the rows of these choices must be in the same batch. A share
is the part of a batch that one device computes at once: a per-replica batch or a micro-batch.

Letters: B units of a batch, G examples, M total number of shares in all batches, U units of a share, E rows of a share,
R packed rows of a share.
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
_SAMPLED_SHARES = 64
_SAMPLED_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class PackedShape:
    """The static shape of a share's packed rows."""

    rows: int  # number of packed rows, R
    width: int  # length of packed rows, W
    sequences: int  # maximum number of rows in a packed row, K


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """The plan of all batches."""

    ids: np.ndarray  # int32 [M, E], indices of rows; N for padding entries, which only fill the share
    units: int  # number of units of a share, U
    shape: PackedShape | None = None  # shape of the packed rows; None without packing
    # int32 [M, E, 3]; None without packing. The last axis has three values for each row: the index of its packed row in
    # the share, its first position in the packed row, and its index among the rows of the packed row. The values of
    # padding entries are 0.
    places: np.ndarray | None = None


def plan_training(
    lengths: np.ndarray,
    *,
    batch_size: int,
    num_batches: int,
    shares: int = 1,
    seed: int = 0,
    packed_for: BertConfig | None = None,
    group_sizes: np.ndarray | None = None,
) -> RowPlan:
    """Plans the batches of training.
    `lengths`: int [N], number of tokens of each row.
    `batch_size`: number of units of a batch, B.
    `num_batches`: number of batches of the run.
    `shares`: number of equal shares of a batch: the product of the numbers of replicas, micro-batches and parts.
    `seed`: see `training_order`.
    `packed_for`: configuration of the model for which rows are packed; None for no packing.
    `group_sizes`: see `Task.group_sizes`."""
    unit_lengths = lengths if group_sizes is None else _sums(lengths, group_sizes)
    units = training_order(unit_lengths, batch_size, seed, num_batches * batch_size).reshape(num_batches * shares, -1)
    if packed_for is None:
        return RowPlan(units if group_sizes is None else _rows_of(units, group_sizes), units.shape[1])
    plans = []
    for given in (units, _evened(units, unit_lengths, shares)) if shares > 1 else (units,):
        ids = given if group_sizes is None else _rows_of(given, group_sizes)
        width = _best_width(lengths, ids, _widths(lengths, packed_for), packed_for)
        plans.append(_placed(lengths, ids, given.shape[1], *_fit_all(lengths, ids, width), width))
    return min(plans, key=lambda plan: _cost(plan.shape.rows, plan.shape.width, packed_for))


def plan_evaluation(
    lengths: np.ndarray,
    *,
    batch_size: int,
    max_seq_length: int,
    shares: int = 1,
    packed_for: BertConfig | None = None,
    group_sizes: np.ndarray | None = None,
) -> RowPlan:
    """Plans the batches of one pass over all rows. A packed batch has at most as many positions, including padding, as
    an unpacked batch.
    `lengths`: int [N], number of tokens of each row.
    `batch_size`: number of units of an unpacked batch, B.
    `shares`: number of equal shares of a batch.
    `packed_for`: configuration of the model for which rows are packed; None for no packing.
    `group_sizes`: see `Task.group_sizes`."""
    count, size = len(lengths) if group_sizes is None else len(group_sizes), batch_size // shares
    if packed_for is None:
        padded = np.arange(count + -count % batch_size, dtype=np.int32)
        units = np.minimum(padded, count).reshape(-1, size)
        return RowPlan(units if group_sizes is None else _rows_of(units, group_sizes), size)
    if group_sizes is not None:
        return _plan_packed_groups(lengths, group_sizes, size, max_seq_length, shares, packed_for)
    sample = np.random.default_rng(0).permutation(count)[:_SAMPLED_ROWS]
    candidates = [w for w in _widths(lengths, packed_for) if w <= size * max_seq_length] or [max_seq_length]
    width = _best_width(lengths, sample[np.newaxis], candidates, packed_for)
    row_of = _fit(lengths, width)
    total = int(row_of.max()) + 1
    # The longest rows are packed first, so the first packed rows have few rows. Shuffling the packed rows gives all
    # batches about the same number of rows.
    row_of = np.random.default_rng(0).permutation(total)[row_of]
    share_rows = max(1, size * max_seq_length // width)
    num_batches = -(-total // (share_rows * shares))
    share_rows = -(-total // (num_batches * shares))
    share_of = row_of // share_rows
    order = np.argsort(share_of, kind="stable")
    sizes = np.bincount(share_of, minlength=num_batches * shares)
    taken = np.arange(sizes.max()) < sizes[:, np.newaxis]  # [M, E]
    ids = np.full(taken.shape, count, np.int32)
    rows = np.full(taken.shape, share_rows, np.int32)
    ids[taken], rows[taken] = order, row_of[order] % share_rows
    return _placed(lengths, ids, ids.shape[1], rows, share_rows, width)


def _plan_packed_groups(
    lengths: np.ndarray, group_sizes: np.ndarray, size: int, max_seq_length: int, shares: int, packed_for: BertConfig
) -> RowPlan:
    """Plans one pass over examples whose rows stay together. A packed share takes as many examples as fit without
    exceeding the size of an unpacked share."""
    tokens, count = _sums(lengths, group_sizes), len(group_sizes)
    most = size * int(group_sizes.max()) * max_seq_length
    # Begin with 95%, because rows hardly ever fill a share to the last token.
    in_share = max(size, min(int(0.95 * most / tokens.mean()), -(-count // shares)))
    while True:
        order = training_order(tokens, in_share * shares, 0, count)
        padded = np.append(order, np.full(-count % (in_share * shares), count, order.dtype))
        ids = _rows_of(padded.reshape(-1, in_share), group_sizes)
        width = _best_width(lengths, ids, _widths(lengths, packed_for), packed_for)
        rows, num_rows = _fit_all(lengths, ids, width)
        if num_rows * width <= most or in_share == size:
            return _placed(lengths, ids, in_share, rows, num_rows, width)
        in_share = max(size, int(0.9 * in_share))


def _evened(units: np.ndarray, lengths: np.ndarray, shares: int) -> np.ndarray:
    """Balances the number of tokens between the shares of each batch. In each batch, the share with the most tokens
    exchanges a unit with the share with the fewest tokens. Otherwise, a single share with many tokens would determine
    the static shape of all shares."""
    units = units.copy()
    for batch in units.reshape(-1, shares, units.shape[1]):
        totals = lengths[batch].sum(axis=1)
        heavy, light = batch[totals.argmax()], batch[totals.argmin()]
        excess = lengths[heavy][:, np.newaxis] - lengths[light]  # [U, U]
        i, j = np.unravel_index(np.abs(2 * excess - (totals.max() - totals.min())).argmin(), excess.shape)
        if excess[i, j] > 0:
            heavy[i], light[j] = light[j], heavy[i]
    return units


def _sums(lengths: np.ndarray, group_sizes: np.ndarray) -> np.ndarray:
    """Returns the total length of each example's rows, int [G]."""
    return np.add.reduceat(lengths, np.cumsum(group_sizes) - group_sizes)


def _rows_of(examples: np.ndarray, group_sizes: np.ndarray) -> np.ndarray:
    """Returns the indices of the rows of the given examples, in the order of the examples."""
    ends = np.cumsum(group_sizes)
    sizes = np.append(group_sizes, 0)[examples]  # [M, U]
    firsts = np.append(ends - group_sizes, 0)[examples]
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
    """Returns, for each row, the index of its packed row in the share, int [M, E]; also returns R. The index of padding
    entries is R."""
    rows = np.full(ids.shape, -1)
    for share, found in zip(ids, rows, strict=True):
        real = share < len(lengths)
        if real.any():
            found[real] = _fit(lengths[share[real]], width)
    num_rows = int(rows.max()) + 1
    return np.where(rows < 0, num_rows, rows), num_rows


def _best_width(lengths: np.ndarray, ids: np.ndarray, widths: Sequence[int], config: BertConfig) -> int:
    """Returns the length of packed rows with the lowest cost for a sample of the shares. A sample is enough, because
    all batches except those that span two epochs have similar numbers of tokens."""
    sample = ids[np.unique(np.linspace(0, len(ids) - 1, _SAMPLED_SHARES).astype(int))]
    return min(widths, key=lambda width: _cost(_fit_all(lengths, sample, width)[1], width, config))


def _placed(lengths: np.ndarray, ids: np.ndarray, units: int, rows: np.ndarray, num_rows: int, width: int) -> RowPlan:
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
    return RowPlan(ids, units, PackedShape(num_rows, width, int(places[:, :, 2].max()) + 1), places)
