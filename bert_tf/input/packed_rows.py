"""Packs several examples into one row, so that devices do not compute padding.

Each example keeps its own [CLS], positions and label. The attention of a packed row is block-diagonal (`encoder`),
so its examples do not attend to each other, and the loss is the same as with separate rows.

Letters: M examples, N maximum number of examples per row.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tfrecords.schema import PREDICTIONS

# Share of the rows that must fit the shape. Each prediction in the shape costs a product with the output embedding
# table, so a few exceptional rows should not determine the number of predictions.
_SHARE_OF_ROWS = 0.999


@dataclasses.dataclass(frozen=True)
class RowShape:
    """The static shape of packed rows. An example that does not fit into a row goes into another row."""

    sequences: int  # N, the maximum number of examples per row
    # P, the maximum number of predictions per row; at least the maximum number of predictions of one example
    predictions: int


def shape_for(
    lengths: np.ndarray, predictions: np.ndarray, max_seq_length: int, max_predictions_per_seq: int
) -> RowShape:
    """Returns the smallest shape that fits nearly all rows packed from a sample of examples.
    `lengths`: int [M], number of tokens of each example.
    `predictions`: int [M], number of predictions of each example.
    `max_seq_length`: row length S.
    `max_predictions_per_seq`: maximum number of predictions of one example."""
    any_shape = RowShape(max_seq_length, int(predictions.sum()) + max_predictions_per_seq)
    row = best_fit(lengths, predictions, max_seq_length, any_shape)
    needed = [np.quantile(np.bincount(row, each), _SHARE_OF_ROWS, method="higher") for each in (None, predictions)]
    return RowShape(int(needed[0]), max(int(needed[1]), max_predictions_per_seq))


def best_fit(lengths: np.ndarray, predictions: np.ndarray, max_seq_length: int, shape: RowShape) -> np.ndarray:
    """Assigns each example, the longest first, to the fullest row that has space for the example (best fit).
    `lengths`: int [M], number of tokens of each example, from 1 to S.
    `predictions`: int [M], number of predictions of each example, at most P.
    `max_seq_length`: row length S.
    `shape`: the shape of packed rows, with N and P.
    Returns int64 [M], the row of each example."""
    row_of = np.empty(len(lengths), np.int64)
    # `by_space[n]` lists the rows with space for exactly n more tokens. Bit n of `spaces` is set if this list
    # is not empty.
    by_space: list[list[int]] = [[] for _ in range(max_seq_length + 1)]
    spaces = 0
    sequences_left: list[int] = []
    predictions_left: list[int] = []
    length_of, predictions_of = lengths.tolist(), predictions.tolist()
    for example in np.argsort(-lengths, kind="stable").tolist():
        length, wanted = length_of[example], predictions_of[example]
        space = _tightest(length, wanted, by_space, spaces, predictions_left)
        if space is None:
            row, space = len(sequences_left), max_seq_length
            sequences_left.append(shape.sequences)
            predictions_left.append(shape.predictions)
        else:
            row = by_space[space].pop()
            if not by_space[space]:
                spaces ^= 1 << space
        row_of[example] = row
        space -= length
        sequences_left[row] -= 1
        predictions_left[row] -= wanted
        if space and sequences_left[row]:
            by_space[space].append(row)
            spaces |= 1 << space
    return row_of


def _tightest(
    length: int, wanted: int, by_space: list[list[int]], spaces: int, predictions_left: list[int]
) -> int | None:
    """Returns the smallest free space of a row into which an example fits; None if there is no such row. The function
    also moves the row that has this space to the end of `by_space[space]`, where the caller pops it."""
    spaces = spaces >> length << length
    while spaces:
        lowest = spaces & -spaces
        space = lowest.bit_length() - 1
        rows = by_space[space]
        for index in range(len(rows) - 1, -1, -1):
            if predictions_left[rows[index]] >= wanted:
                rows.append(rows.pop(index))
                return space
        spaces ^= lowest
    return None


def pack_rows(examples: Mapping[str, np.ndarray], shape: RowShape, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Packs examples into rows.
    `examples`: the columns of the examples:
      - `input_ids`, `input_mask`, `segment_ids`: int [M, S], padded at the end.
      - for masked rows, `masked_lm_positions`, `masked_lm_ids`: int [M, predictions].
      - for masked rows, `masked_lm_weights`: float [M, predictions].
      - for pairs, `next_sentence_labels`: int [M].
    `shape`: the shape of packed rows, with N and P.
    `rng`: generator that shuffles the rows, because packing puts the longest examples into the first rows.
    Returns the packed columns: weights are float32, and other columns are int32. The given columns become:
    - columns of tokens: [R, S].
    - columns of predictions: [R, P].
    - `next_sentence_labels`: [R, N].
    New columns are:
    - `position_ids`: [R, S].
    - `sequence_ids`: [R, S], the index, from 1, of the token's example within the row; 0 for padding.
    - `cls_positions`: [R, N].
    - for pairs, `next_sentence_weights`: [R, N].
    Unused entries are 0."""
    row, examples = _in_order_of_rows(examples, shape, rng)
    real = examples["input_mask"] > 0
    length, lengths = real.shape[1], real.sum(axis=1)
    number = _before_in_row(row, np.ones_like(row))  # [M]
    start = _before_in_row(row, lengths)
    filled = np.arange(length) < np.bincount(row, lengths)[:, None]  # [R, S]

    def place(values, where):
        result = np.zeros(where.shape, np.float32 if values.dtype.kind == "f" else np.int32)
        result[where] = values
        return result

    packed = {name: place(examples[name][real], filled) for name in ("input_ids", "segment_ids")}
    position = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    packed["position_ids"] = place(position, filled)
    packed["sequence_ids"] = place(np.repeat(number + 1, lengths), filled)
    packed["input_mask"] = filled.astype(np.int32)
    taken = np.arange(shape.sequences) < np.bincount(row)[:, None]  # [R, N]
    packed["cls_positions"] = place(start, taken)
    if "next_sentence_labels" in examples:
        packed["next_sentence_labels"] = place(examples["next_sentence_labels"], taken)
        packed["next_sentence_weights"] = taken.astype(np.float32)
    if "masked_lm_weights" in examples:
        predicted = examples["masked_lm_weights"] > 0
        wanted = np.arange(shape.predictions) < np.bincount(row, predicted.sum(axis=1))[:, None]  # [R, P]
        moved = {**examples, "masked_lm_positions": examples["masked_lm_positions"] + start[:, None]}
        for name in PREDICTIONS:
            packed[name] = place(moved[name][predicted], wanted)
    return packed


def _in_order_of_rows(
    examples: Mapping[str, np.ndarray], shape: RowShape, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Sorts examples by their rows; returns the row of each example, and the columns in this order."""
    lengths = (examples["input_mask"] > 0).sum(axis=1)
    weights = examples.get("masked_lm_weights", np.zeros((len(lengths), 0)))
    row = best_fit(lengths, (weights > 0).sum(axis=1), examples["input_mask"].shape[1], shape)
    row = rng.permutation(row.max() + 1)[row]
    order = np.argsort(row, kind="stable")
    return row[order], {name: column[order] for name, column in examples.items()}


def widths(examples: Mapping[str, Sequence[int]], max_seq_length: int, shape: RowShape) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the columns that `pack_rows` returns, without the dimension R.
    `examples`: shapes of the columns given to `pack_rows`, without the dimension M.
    `max_seq_length`: row length S.
    `shape`: the shape of packed rows, with N and P."""
    per_token = ("input_ids", "input_mask", "segment_ids", "position_ids", "sequence_ids")
    per_example = ["cls_positions"]
    if "next_sentence_labels" in examples:
        per_example += ["next_sentence_labels", "next_sentence_weights"]
    packed = dict.fromkeys(per_token, (max_seq_length,)) | dict.fromkeys(per_example, (shape.sequences,))
    return packed | {name: (shape.predictions,) for name in examples if name.startswith("masked_lm")}


def _before_in_row(row: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """For each example, sums the amounts of the preceding examples in the same row; returns int64 [M]. The examples
    must be sorted by row."""
    before = np.cumsum(amounts) - amounts
    return before - before[np.searchsorted(row, row)]
