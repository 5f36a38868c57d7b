"""What is written of some texts, in the columns that every output format has.

Letters: N texts, T tokens, L layers, H hidden size.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_tf.features.rows import Rows
from bert_tf.jobs import parts

# Columns with an entry for each token.
TOKEN_COLUMNS = ("input_ids", "segment_ids", "words", "starts", "ends")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some texts and their vectors, in the order of the input.

    Attributes:
      lines: int64 [N], the number of each text's line in all input files together, from 0.
      ids: what the input names the texts; None if it names none.
      rows: their tokens.
      values: float32 or float16 [T, L, H], or pooled [N, L, H].
    """

    lines: np.ndarray
    ids: Sequence[str | int] | None
    rows: Rows
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Output:
    """What a writer must know of the whole output.

    Attributes:
      vocabulary: tokens by id.
      layers: the layers as the user named them.
      hidden_size: H.
      dtype: "float32" or "float16".
      is_pooled: whether a text has one vector.
      has_ids: whether texts have ids.
      alignment: whether JSON Lines have the alignment.
    """

    vocabulary: Sequence[str]
    layers: tuple[int, ...]
    hidden_size: int
    dtype: str
    is_pooled: bool
    has_ids: bool
    alignment: bool


@dataclasses.dataclass(frozen=True)
class Facts(parts.Facts):
    """Counts of a part of the output.

    Attributes:
      truncated: texts of which tokens were cut off.
      damaged: lines with bytes that are not UTF-8.
      longest_id: characters of the longest id.
    """

    truncated: int = 0
    damaged: int = 0
    longest_id: int = 0

    def __add__(self, other: "Facts") -> "Facts":
        """Returns the counts of both parts together."""
        return dataclasses.replace(super().__add__(other), longest_id=max(self.longest_id, other.longest_id))
