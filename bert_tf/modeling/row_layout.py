"""The layout of a batch in the encoder: padded rows, or the tokens of all rows without padding.

Letters: N tokens of all rows, h heads, M maps that one product computes (queries, keys, values), Q positions that are
read.
"""

import tensorflow as tf


class PaddedRows:
    """The default layout: activations have the shape [B, S, H], with padding. `PlainOperations` and `FusedOperations`
    inherit from this class, and `JoinedRows` has the same methods."""

    def of_rows(self, input_mask: tf.Tensor) -> "PaddedRows":
        """Returns the operations for a batch with this mask, int32 [B, S]."""
        del input_mask
        return self

    def joined(self, *columns: tf.Tensor | None) -> tuple[tf.Tensor | None, ...]:
        """Converts `input_ids`, `segment_ids` and `position_ids`, int32 [B, S], to the layout."""
        return columns

    def gathered(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Returns the activations at positions in each row, int32 [B, Q]: float [B, Q, H]."""
        return tf.gather(x, positions, batch_dims=1)

    def padded(self, x: tf.Tensor) -> tf.Tensor:
        """Converts activations from the layout to float [B, S, H]."""
        return x


class JoinedRows:
    """The tokens of all rows, one after another, without padding: activations have the shape [N, H]. Products with
    matrices compute only tokens, so padding costs nothing there. Only attention needs rows. At padding, attention reads
    the values of the row's own first token, and the mask hides them.
    `input_mask`: int32 [B, S]. The first position of each row counts as a token, even if the mask is 0 there."""

    def __init__(self, input_mask: tf.Tensor):
        shape = tf.shape(input_mask)
        self._length = shape[1]
        is_token = tf.logical_or(input_mask > 0, tf.equal(tf.range(self._length), 0))  # [B, S]
        flat = tf.reshape(is_token, [-1])
        self._places = tf.cast(tf.where(flat)[:, 0], tf.int32)  # [N], from 0 to B S - 1
        numbers = tf.reshape(tf.cumsum(tf.cast(flat, tf.int32)) - 1, shape)
        # [B, S], the number of the token at each position.
        self._numbers = tf.where(is_token, numbers, numbers[:, :1])
        self._indices: dict[tuple[int, int], tf.Tensor] = {}

    def joined(self, *columns: tf.Tensor | None) -> tuple[tf.Tensor, ...]:
        """See `PaddedRows`; returns int32 [N] columns. Without positions, the positions of each row start at 0."""
        *ids, positions = columns
        flat = [tf.gather(tf.reshape(column, [-1]), self._places) for column in ids]
        if positions is None:
            return *flat, self._places % self._length
        return *flat, tf.gather(tf.reshape(positions, [-1]), self._places)

    def gathered(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """See `PaddedRows`; x is float [N, H]."""
        return tf.gather(x, tf.gather(self._numbers, positions, batch_dims=1))

    def padded(self, x: tf.Tensor) -> tf.Tensor:
        """See `PaddedRows`; x is float [N, H], or float [B, Q, H], which is returned."""
        return tf.gather(x, self._numbers) if x.shape.rank == 2 else x

    def heads(self, x: tf.Tensor, maps: int, count: int) -> list[tf.Tensor]:
        """Separates rows and heads.
        `x`: float [N, M h D].
        `maps`: M.
        Returns a list of M tensors, float [B, h, S, D]."""
        if (maps, count) not in self._indices:
            parts = tf.reshape(tf.range(maps * count), [maps, 1, count, 1])
            self._indices[maps, count] = self._numbers[tf.newaxis, :, tf.newaxis, :] * (maps * count) + parts
        # Gathering short vectors is as fast as transposing, and needs no second copy.
        vectors = tf.reshape(x, [-1, x.shape[1] // (maps * count)])
        return tf.unstack(tf.gather(vectors, self._indices[maps, count]))

    def tokens(self, context: tf.Tensor) -> tf.Tensor:
        """Joins rows and heads: float [B, h, S, D] to float [N, h D]."""
        count, size = context.shape[1], context.shape[3]
        if (0, count) not in self._indices:
            row, column = self._places // self._length, self._places % self._length
            first = (row * count * self._length + column)[:, tf.newaxis]
            self._indices[0, count] = first + tf.range(count) * self._length  # [N, h]
        vectors = tf.gather(tf.reshape(context, [-1, size]), self._indices[0, count])
        return tf.reshape(vectors, [-1, count * size])
