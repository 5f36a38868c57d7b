"""Several examples in one row, so that padding is not computed.

Each example keeps its own [CLS], positions and label; the attention of a row is block-diagonal
(`encoder`), so its examples do not see each other and the loss is that of the same examples apart.

Letters: M examples, R rows made of them, S sequence length, P predictions of a row, N examples of a
row at most.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

# Every position that is predicted costs a product with the vocabulary, so a few rows do not decide how many there are.
_SHARE_OF_ROWS = 0.999


@dataclasses.dataclass(frozen=True)
class RowShape:
    """The static shape of packed rows. What does not fit goes into another row, so nothing is lost.

    Attributes:
      sequences: N.
      predictions: P; at least as many as an example may have.
    """

    sequences: int
    predictions: int


def shape_for(
    lengths: np.ndarray, predictions: np.ndarray, max_seq_length: int, max_predictions_per_seq: int
) -> RowShape:
    """The shape that nearly all rows of a sample of examples need.

    Args:
      lengths: int [M], pieces of each example.
      predictions: int [M], predictions of each.
      max_seq_length: S.
      max_predictions_per_seq: predictions that any example may have.
    """
    any_shape = RowShape(max_seq_length, int(predictions.sum()) + max_predictions_per_seq)
    row = best_fit(lengths, predictions, max_seq_length, any_shape)
    needed = [np.quantile(np.bincount(row, each), _SHARE_OF_ROWS, method="higher") for each in (None, predictions)]
    return RowShape(int(needed[0]), max(int(needed[1]), max_predictions_per_seq))


def best_fit(lengths: np.ndarray, predictions: np.ndarray, max_seq_length: int, shape: RowShape) -> np.ndarray:
    """Puts the longest examples first, each into the row that it leaves the least space in.

    Args:
      lengths: int [M], from 1 to S.
      predictions: int [M], at most P each.
      max_seq_length: S.
      shape: N and P.

    Returns:
      int64 [M], the row of each example.
    """
    row_of = np.empty(len(lengths), np.int64)
    # rows that take more, by the space that is left in them, and a bit for each space that some row has
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
    """The least space that takes an example, with a row that does last in its list; None where there is none."""
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

    Args:
      examples: `input_ids`, `input_mask`, `segment_ids` int [M, S], padded at the end; where something is masked,
        `masked_lm_positions`, `masked_lm_ids` int and `masked_lm_weights` float [M, predictions]; for pairs
        `next_sentence_labels` int [M]; perhaps `record_ids` int [M, 2].
      shape: N and P.
      rng: puts the rows in random order, since the longest examples are packed first.

    Returns:
      The same names, int32 and float32: [R, S], [R, P], `next_sentence_labels` [R, N] with
      `next_sentence_weights` [R, N], `record_ids` [R, N, 2] with -1 for no example; and `position_ids` [R, S],
      `sequence_ids` [R, S] (1 for the first example of a row, 0 for padding), `cls_positions` [R, N]. What no
      example fills is 0.
    """
    row, examples = _in_order_of_rows(examples, shape, rng)
    real = examples["input_mask"] > 0
    length, lengths = real.shape[1], real.sum(axis=1)
    rows = row[-1] + 1
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
        for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
            packed[name] = place(moved[name][predicted], wanted)
    if "record_ids" in examples:
        packed["record_ids"] = np.full((rows, shape.sequences, 2), -1, np.int32)
        packed["record_ids"][taken] = examples["record_ids"]
    return packed


def _in_order_of_rows(
    examples: Mapping[str, np.ndarray], shape: RowShape, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The row of each example, ascending, and the examples in this order."""
    lengths = (examples["input_mask"] > 0).sum(axis=1)
    weights = examples.get("masked_lm_weights", np.zeros((len(lengths), 0)))
    row = best_fit(lengths, (weights > 0).sum(axis=1), examples["input_mask"].shape[1], shape)
    row = rng.permutation(row.max() + 1)[row]
    order = np.argsort(row, kind="stable")
    return row[order], {name: column[order] for name, column in examples.items()}


def widths(examples: Mapping[str, Sequence[int]], max_seq_length: int, shape: RowShape) -> dict[str, tuple[int, ...]]:
    """Shapes of what `pack_rows` gives, without the rows, from those of what it is given.

    Args:
      examples: name to shape, without the M.
      max_seq_length: S.
      shape: N and P.
    """
    per_piece = ("input_ids", "input_mask", "segment_ids", "position_ids", "sequence_ids")
    per_example = ["cls_positions"]
    if "next_sentence_labels" in examples:
        per_example += ["next_sentence_labels", "next_sentence_weights"]
    found = dict.fromkeys(per_piece, (max_seq_length,)) | dict.fromkeys(per_example, (shape.sequences,))
    found |= {name: (shape.predictions,) for name in examples if name.startswith("masked_lm")}
    return found | ({"record_ids": (shape.sequences, 2)} if "record_ids" in examples else {})


def _before_in_row(row: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """For each example, in the order of rows, the sum of the amounts of those before it in its row; int64 [M]."""
    before = np.cumsum(amounts) - amounts
    return before - before[np.searchsorted(row, row)]
