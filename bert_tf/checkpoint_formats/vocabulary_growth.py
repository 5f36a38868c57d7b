"""A model's rows for another vocabulary: known pieces keep theirs, new ones start from their old pieces.

Paper: section 3 ("Input/Output Representations").
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.tokenization import UNK

_JOINER = "##"


def row_sources(old: Sequence[str], new: Sequence[str]) -> list[list[int]]:
    """For each piece of a new vocabulary, the ids of the old one whose rows its own is the mean of.

    Args:
      old: pieces that the model has, [UNK] among them.
      new: pieces that it shall have.

    Returns:
      One list a new piece: its old id if it had one; else the ids that the old vocabulary cuts it into, greedily;
      [UNK]'s where that cannot be done.
    """
    ids = {piece: number for number, piece in enumerate(old)}
    longest = max(map(len, old))
    return [[ids[piece]] if piece in ids else _cut(piece, ids, longest) for piece in new]


def _cut(piece: str, ids: dict[str, int], longest: int) -> list[int]:
    """Greedy longest matches of a piece; one that goes on a word is cut as such."""
    prefix = _JOINER if piece.startswith(_JOINER) else ""
    rest, found = piece.removeprefix(_JOINER), []
    while rest:
        ends = range(min(len(rest), longest), 0, -1)
        end = next((end for end in ends if prefix + rest[:end] in ids), None)
        if end is None:
            return [ids[UNK]]
        found.append(ids[prefix + rest[:end]])
        prefix, rest = _JOINER, rest[end:]
    return found or [ids[UNK]]


def grown(rows: np.ndarray, sources: Sequence[Sequence[int]]) -> np.ndarray:
    """Rows for a new vocabulary.

    Rows beyond the new vocabulary's pieces, with which a model was padded, stay where they are; a vocabulary that
    needs more rows than there are gets as many as it has pieces.

    Args:
      rows: float32 [V, ...], V at least the old vocabulary's size.
      sources: of `row_sources`.

    Returns:
      float32 [max(V, len(sources)), ...].
    """
    result = np.empty((max(len(rows), len(sources)), *rows.shape[1:]), np.float32)
    result[len(sources) :] = rows[len(sources) :]
    for number, ids in enumerate(sources):
        result[number] = rows[ids[0]] if len(ids) == 1 else rows[ids].mean(axis=0, dtype=np.float64)
    return result
