"""Computes the encoder's layers for rows of any length; short rows share packed rows.

Letters: T tokens of all rows.
"""

import copy
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.encoder import BertEncoder
from bert_tf.features.model import stack_layers
from bert_tf.features.rows import TokenRows
from bert_tf.input.packed_rows import RowShape, best_fit

# Attention computes W^2 scores per packed row, so each row goes into a packed row of the smallest sufficient length.
_WIDTHS = (64, 128, 256, 512)
# On a CPU, the activations of this number of tokens fit into the cache; larger batches are slower.
_TOKENS_ON_CPU = 1024


class PackedEncoder:
    """Computes the encoder's layers for rows. All batches with the same length of packed rows have the same static
    shape, so TensorFlow compiles few programs.
    `layers`: the layers to return; 0 is the embeddings.
    `batch_size`: a batch has at most `batch_size` times `max_seq_length` tokens; on a CPU, also at most
      `_TOKENS_ON_CPU`."""

    def __init__(self, encoder: BertEncoder, layers: Sequence[int], max_seq_length: int, batch_size: int):
        self._layers, self._hidden, self._max_seq_length = tuple(layers), encoder.config.hidden_size, max_seq_length
        most = encoder.config.max_position_embeddings
        self._widths = [*(width for width in _WIDTHS if width < most), most]
        self._set_size(batch_size)

        def compute(batch):
            return stack_layers(encoder(batch), layers)  # [R, W, L, H]

        self._compute = tf.function(compute, autograph=False)

    def _set_size(self, batch_size: int) -> None:
        self._tokens = batch_size * self._max_seq_length
        if not tf.config.get_visible_devices("GPU"):
            self._tokens = min(self._tokens, _TOKENS_ON_CPU)

    def with_batches_of(self, batch_size: int) -> "PackedEncoder":
        """Returns an encoder with the same weights, for batches of another size."""
        other = copy.copy(self)
        other._set_size(batch_size)
        return other

    def __call__(self, rows: TokenRows) -> np.ndarray:
        """Returns the layers of all tokens, float32 [T, L, H]."""
        values = np.empty([len(rows.input_ids), len(self._layers), self._hidden], np.float32)
        for batch in self._batches(rows):
            computed = self._compute({name: tf.constant(column) for name, column in batch.inputs.items()}).numpy()
            values[batch.tokens] = computed.reshape(-1, *values.shape[1:])[batch.places]
        return values

    def _batches(self, rows: TokenRows) -> Iterator["_Batch"]:
        lengths = rows.lengths
        width_of, left = np.searchsorted(self._widths, lengths), np.arange(len(lengths))
        for index in np.unique(width_of)[::-1].tolist():
            width, is_shorter = self._widths[index], width_of[left] < index
            size = max(1, self._tokens // width)
            if not is_shorter.all():  # otherwise, all rows for this width were packed into batches of wider rows
                chosen, row_of = _filled(left[~is_shorter], left[is_shorter], lengths, width, size)
                left = np.setdiff1d(left, chosen)
                for first in range(0, int(row_of.max()) + 1, size):
                    taken = (row_of >= first) & (row_of < first + size)
                    yield _packed(rows, chosen[taken], row_of[taken] - first, size, width)


def _filled(
    chosen: np.ndarray, shorter: np.ndarray, lengths: np.ndarray, width: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Packs rows, and fills the free space in the last batch with shorter rows."""
    row_of = _fit(lengths[chosen], width)
    most = -(-(int(row_of.max()) + 1) // size) * size
    fill = shorter[np.cumsum(lengths[shorter]) <= most * width - lengths[chosen].sum()]
    while len(fill):
        both = np.concatenate([chosen, fill])
        packed = _fit(lengths[both], width)
        if packed.max() < most:
            return both, packed
        fill = fill[: len(fill) * 9 // 10]
    return chosen, row_of


def _fit(lengths: np.ndarray, width: int) -> np.ndarray:
    return best_fit(lengths, np.zeros_like(lengths), width, RowShape(sequences=width, predictions=0))


@dataclasses.dataclass(frozen=True)
class _Batch:
    """A batch of packed rows."""

    inputs: dict[str, np.ndarray]  # inputs of the encoder, int32 [R, W]
    tokens: np.ndarray  # indices of the batch's tokens among the T tokens
    places: np.ndarray  # the position of each of these tokens among the R * W positions of the batch


def _packed(rows: TokenRows, chosen: np.ndarray, row_of: np.ndarray, size: int, width: int) -> _Batch:
    """Puts rows into packed rows, one after another."""
    order = np.argsort(row_of, kind="stable")
    chosen, row_of = chosen[order], row_of[order]
    lengths = rows.lengths[chosen]
    first = np.searchsorted(row_of, row_of)  # index of the first row in the same packed row
    before = np.cumsum(lengths) - lengths
    position = np.arange(lengths.sum()) - np.repeat(before, lengths)
    tokens = np.repeat(rows.splits[chosen], lengths) + position
    places = np.repeat(row_of * width + before - before[first], lengths) + position
    number = np.repeat(np.arange(len(chosen)) - first + 1, lengths)

    def lay(values) -> np.ndarray:
        laid = np.zeros(size * width, np.int32)
        laid[places] = values
        return laid.reshape(size, width)

    inputs = {
        "input_ids": lay(rows.input_ids[tokens]),
        "input_mask": lay(1),
        "segment_ids": lay(rows.segment_ids[tokens]),
        "position_ids": lay(position),
        "sequence_ids": lay(number),
    }
    return _Batch(inputs, tokens, places)
