"""Which rows of a split each batch holds, and where they lie if several of them share a packed row.

The plan of a whole run is made before it, so that all batches fit one static shape.

Letters: B batch, N rows, M shares (per-replica batches or micro-batches) of all batches, E rows of a share, R packed
rows, W their length, K maximum number of rows in a packed row.
"""

import dataclasses

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.finetuning.row_order import training_order
from bert_tf.input import packed_rows

# Attention computes W^2 scores. Beyond this length that costs more than the last padding it saves.
_LONGEST = 512
_WIDTHS = (64, 96, 128, 192, 256, 384, _LONGEST)
_SAMPLED_SHARES = 64
_SAMPLED_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class PackedShape:
    """The static shape of a share's packed rows.

    Attributes:
      rows: R.
      width: W.
      sequences: K.
    """

    rows: int
    width: int
    sequences: int


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """The rows of all batches.

    Attributes:
      ids: int32 [M, E], indices of rows; N on entries that only fill the share.
      shape: of the packed rows; None if each row stays apart.
      places: int32 [M, E, 3]: the packed row of each row, its first position there and its number there, from 0. Zeros
        on entries that only fill the share. None if each row stays apart.
    """

    ids: np.ndarray
    shape: PackedShape | None = None
    places: np.ndarray | None = None


def plan_training(
    lengths: np.ndarray,
    *,
    batch_size: int,
    num_batches: int,
    shares: int = 1,
    seed: int = 0,
    packed_for: BertConfig | None = None,
) -> RowPlan:
    """Plans the batches of training.

    Args:
      lengths: int [N], number of tokens of each row.
      batch_size: B.
      num_batches: number of batches of the run.
      shares: number of equal shares of a batch: replicas times micro-batches.
      seed: see `training_order`.
      packed_for: the model to pack rows for; None packs none.
    """
    ids = training_order(lengths, batch_size, seed, num_batches * batch_size).reshape(num_batches * shares, -1)
    if packed_for is None:
        return RowPlan(ids)
    # A batch across two epochs is the only one whose number of tokens is random.
    sample = ids[np.unique(np.linspace(0, len(ids) - 1, _SAMPLED_SHARES).astype(int))]
    width = min(_widths(lengths, packed_for), key=lambda w: _cost(_most_rows(lengths, sample, w), w, packed_for))
    rows = _fit_all(lengths, ids, width)
    return _placed(lengths, ids, rows, width)


def plan_evaluation(
    lengths: np.ndarray,
    *,
    batch_size: int,
    max_seq_length: int,
    shares: int = 1,
    packed_for: BertConfig | None = None,
) -> RowPlan:
    """Plans the batches of one pass over all rows; a packed batch has at most the tokens of an unpacked one.

    Args:
      lengths: int [N], number of tokens of each row.
      batch_size: B, number of unpacked rows.
      max_seq_length: length of unpacked rows.
      shares: number of replicas.
      packed_for: the model to pack rows for; None packs none.
    """
    count, size = len(lengths), batch_size // shares
    if packed_for is None:
        padded = np.arange(count + -count % batch_size, dtype=np.int32)
        return RowPlan(np.minimum(padded, count).reshape(-1, size))
    sample = np.random.default_rng(0).permutation(count)[:_SAMPLED_ROWS]
    candidates = [w for w in _widths(lengths, packed_for) if w <= size * max_seq_length]
    width = min(candidates, key=lambda w: _cost(_most_rows(lengths, sample[np.newaxis], w), w, packed_for))
    row_of = _fit(lengths, width)
    total = int(row_of.max()) + 1
    # The longest rows are packed first; batches in random order all have about the same number of rows.
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
    return _placed(np.append(lengths, 0), ids, rows, width, share_rows)


def _widths(lengths: np.ndarray, config: BertConfig) -> list[int]:
    """Returns the lengths of packed rows to choose from; the longest row fits into each."""
    longest, limit = int(lengths.max()), config.max_position_embeddings
    shortest = min(longest + -longest % 16, limit)
    return [shortest, *(w for w in _WIDTHS if shortest < w <= min(limit, max(2 * longest, 128)))]


def _cost(rows: int, width: int, config: BertConfig) -> float:
    """Estimates the time of packed rows: that of a token grows with W by its attention."""
    return rows * width * (1 + width / (2 * config.hidden_size))


def _fit(lengths: np.ndarray, width: int) -> np.ndarray:
    """Returns the packed row of each of some rows."""
    # Rows of very many sequences would make K large, and the last layer computes K positions of each.
    most = 2 + 2 * -(-width // max(1, int(lengths.mean())))
    shape = packed_rows.RowShape(sequences=most, predictions=0)
    return packed_rows.best_fit(lengths, np.zeros_like(lengths), width, shape)


def _fit_all(lengths: np.ndarray, ids: np.ndarray, width: int) -> np.ndarray:
    """Returns the packed row of each row within its share, int [M, E]."""
    return np.stack([_fit(lengths[share], width) for share in ids])


def _most_rows(lengths: np.ndarray, ids: np.ndarray, width: int) -> int:
    return int(_fit_all(lengths, ids, width).max()) + 1


def _placed(lengths: np.ndarray, ids: np.ndarray, rows: np.ndarray, width: int, num_rows: int = 0) -> RowPlan:
    """Lays the rows of each packed row one after the other.

    Args:
      lengths: int [N] or more.
      ids: int [M, E].
      rows: int [M, E], packed row of each row; R on entries that only fill the share.
      width: W.
      num_rows: R; 0 for as many as are used.
    """
    num_rows = num_rows or int(rows.max()) + 1
    order = np.argsort(rows, axis=1, kind="stable")
    sorted_rows = np.take_along_axis(rows, order, axis=1)
    begins = np.diff(sorted_rows, axis=1, prepend=-1) != 0
    before = np.zeros((*ids.shape, 2), np.int64)  # tokens and sequences before each row in its packed row
    for index, sizes in enumerate((np.take_along_axis(lengths[ids], order, axis=1), np.ones_like(order))):
        total = np.cumsum(sizes, axis=1) - sizes
        before[:, :, index] = total - np.maximum.accumulate(np.where(begins, total, 0), axis=1)
    places = np.zeros((*ids.shape, 3), np.int32)
    places_sorted = np.concatenate([sorted_rows[:, :, np.newaxis], before], axis=2)
    np.put_along_axis(places, order[:, :, np.newaxis], places_sorted.astype(np.int32), axis=1)
    places[rows == num_rows] = 0
    return RowPlan(ids, PackedShape(num_rows, width, int(places[:, :, 2].max()) + 1), places)
