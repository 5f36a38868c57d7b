"""The columns of the output for a group of texts, and the interface of output formats.

Letters: N texts, T tokens.
"""

import abc
import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from bert_tf.features.rows import Rows
from bert_tf.jobs import local_files, parts
from bert_tf.settings.features import FeaturesSettings

# Columns with an entry for each token.
TOKEN_COLUMNS = ("input_ids", "segment_ids", "words", "starts", "ends")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some texts and their vectors, in the order of the input.

    Attributes:
      lines: int64 [N], the index of each text's line among the lines of all input files.
      ids: the texts' ids in the input; None if the input has no ids.
      rows: the tokens of the texts.
      values: the vectors, float32 or float16 [T, L, H]; [N, L, H] if pooled.
    """

    lines: np.ndarray
    ids: Sequence[str | int] | None
    rows: Rows
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Facts(parts.Facts):
    """Counts of a part of the output.

    Attributes:
      unknown: number of tokens that are [UNK].
      truncated: number of texts that were truncated.
      damaged: number of lines with bytes that are not UTF-8.
      longest_id: number of characters of the longest id.
    """

    unknown: int = 0
    truncated: int = 0
    damaged: int = 0
    longest_id: int = 0

    def __add__(self, other: "Facts") -> "Facts":
        """Returns the sums of the counts, and the larger `longest_id`."""
        return dataclasses.replace(super().__add__(other), longest_id=max(self.longest_id, other.longest_id))


class Format(abc.ABC):
    """A format for storing vectors; by default, parts are concatenated into a shard.

    Args:
      vector_size: number of values of a vector.
      vocabulary: tokens in the order of their ids; only `write` needs the tokens.
    """

    def __init__(self, settings: FeaturesSettings, vector_size: int, vocabulary: Sequence[str] = ()):
        self.settings, self.vector_size, self.vocabulary = settings, vector_size, vocabulary
        self.layers, self.is_pooled, self.has_ids = settings.layer_numbers, settings.is_pooled, bool(settings.id_field)

    @abc.abstractmethod
    def write(self, path: str, chunks: Iterable[Chunk]) -> None:
        """Writes chunks to one part of the output, atomically."""

    def files(self, path: str) -> list[str]:
        return [path]

    def join(self, path: str, parts: Sequence[str], facts: Facts) -> None:
        """Joins parts into a shard atomically."""
        local_files.concatenate(path, parts)
