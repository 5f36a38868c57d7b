"""Adapts a model to a larger or smaller vocabulary: old tokens keep their rows, and a new token gets the mean of rows.

Paper: section 3 ("Input/Output Representations").
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.tokenization import UNK

_JOINER = "##"


def find_row_sources(old: Sequence[str], new: Sequence[str]) -> list[list[int]]:
    """Finds, for each token of the new vocabulary, the ids of the old tokens whose rows are averaged.
    `old`: the model's vocabulary, including [UNK].
    Returns a list of old ids for each token of the new vocabulary. A token of the old vocabulary has its old id. A new
    token is split into old tokens by greedy longest match, and has the ids of these tokens. If the new token cannot be
    split, it has the id of [UNK]."""
    ids = {token: number for number, token in enumerate(old)}
    longest = max(map(len, old))
    return [[ids[token]] if token in ids else _split_token(token, ids, longest) for token in new]


def _split_token(token: str, ids: dict[str, int], longest: int) -> list[int]:
    """Splits a token greedily into the longest tokens in `ids`, and returns the ids of these tokens."""
    prefix = _JOINER if token.startswith(_JOINER) else ""
    rest, pieces = token.removeprefix(_JOINER), []
    while rest:
        ends = range(min(len(rest), longest), 0, -1)
        end = next((end for end in ends if prefix + rest[:end] in ids), None)
        if end is None:
            return [ids[UNK]]
        pieces.append(ids[prefix + rest[:end]])
        prefix, rest = _JOINER, rest[end:]
    return pieces or [ids[UNK]]


def change_rows(rows: np.ndarray, sources: Sequence[Sequence[int]], size: int) -> np.ndarray:
    """Computes the rows of a new vocabulary. Rows after its last token are padding, and keep their values.
    `rows`: float32 [V, ...]; V is at least the old vocabulary's size.
    `sources`: the result of `find_row_sources`.
    `size`: number of rows of the result, at least one for each token.
    Returns float32 [size, ...]."""
    result = np.empty((size, *rows.shape[1:]), np.float32)
    result[len(sources) :] = rows[len(sources) : size]
    for number, ids in enumerate(sources):
        result[number] = rows[ids[0]] if len(ids) == 1 else rows[ids].mean(axis=0, dtype=np.float64)
    return result
