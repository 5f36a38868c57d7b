"""Packs tokenized segments into the rows that the encoder reads: [CLS] A [SEP] B [SEP].

Paper: section 3 ("Input/Output Representations"), Figure 2.

Letters: B batch, S sequence length.
"""

from collections.abc import Mapping

import tensorflow as tf

# Values of --long_text, which says how to treat a text that is longer than a row.
TRUNCATE, HEAD_TAIL, WINDOW = "truncate", "head_tail", "window"


def truncated_lengths(length_a: tf.Tensor, length_b: tf.Tensor, budget: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the segment lengths after tokens are removed from the end of the longer segment, one at a time.

    If both are equally long, a token of B is removed, as in the original.

    Args:
      length_a: int64 [B], number of tokens in A.
      length_b: int64 [B], number of tokens in B.
      budget: maximum of the two lengths together.

    Returns:
      Two int64 [B]: the lengths of A and B after truncation.
    """
    half_up, half_down = (budget + 1) // 2, budget // 2
    keep_a = tf.minimum(length_a, tf.maximum(budget - length_b, half_up))
    keep_b = tf.minimum(length_b, tf.maximum(budget - length_a, half_down))
    return keep_a, keep_b


def kept_lengths(length_a: tf.Tensor, length_b: tf.Tensor, max_seq_length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes how many tokens of each segment fit into a row with [CLS] and one [SEP] per segment.

    Args:
      length_a: int64 [B], number of tokens in A.
      length_b: int64 [B], number of tokens in B; 0 for a row of A alone.
      max_seq_length: S.

    Returns:
      Two int64 [B]: the number of kept tokens of A, and of B.
    """
    paired_a, paired_b = truncated_lengths(length_a, length_b, max_seq_length - 3)
    return tf.where(length_b > 0, paired_a, tf.minimum(length_a, max_seq_length - 2)), paired_b


def pack(
    segment_a: tf.RaggedTensor,
    segment_b: tf.RaggedTensor | None,
    *,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
    with_tail: bool = False,
) -> dict[str, tf.Tensor]:
    """Packs one or two segments per row into fixed-length model inputs, padded with id 0.

    A row with an empty B is [CLS] A [SEP].

    Args:
      segment_a: int32 [B, (tokens)].
      segment_b: int32 [B, (tokens)], or None for single-text tasks.
      max_seq_length: S.
      cls_id: id of [CLS].
      sep_id: id of [SEP].
      with_tail: whether a segment that is too long keeps tokens from its start (a quarter of them, rounded) and from
        its end (three quarters), instead of only from its start. The number of kept tokens is the same.

    Returns:
      `input_ids`, `input_mask`, `segment_ids`, int32 [B, S].
    """
    rows = segment_a.nrows()
    if segment_b is None:
        segment_b = tf.RaggedTensor.from_row_splits(
            tf.zeros([0], tf.int32), tf.zeros([rows + 1], tf.int64), validate=False
        )
    length_a, length_b = segment_a.row_lengths(), segment_b.row_lengths()
    has_b = tf.cast(length_b > 0, tf.int64)
    keep_a, keep_b = kept_lengths(length_a, length_b, max_seq_length)
    cut = _first_and_last if with_tail else _first
    a, b = cut(segment_a, keep_a), cut(segment_b, keep_b)

    ones = tf.ones([rows], tf.int64)
    cls = tf.RaggedTensor.from_row_lengths(tf.fill([rows], cls_id), ones, validate=False)
    sep = tf.RaggedTensor.from_row_lengths(tf.fill([rows], sep_id), ones, validate=False)
    sep_b = _first(sep, has_b)
    ids = tf.concat([cls, a, sep, b, sep_b], axis=1)  # [B, (S)]
    second_segment_start = (keep_a + 2)[:, tf.newaxis]
    lengths = ids.row_lengths()[:, tf.newaxis]
    column = tf.range(max_seq_length, dtype=tf.int64)[tf.newaxis, :]
    input_ids = ids.to_tensor(shape=[None, max_seq_length])
    return {
        "input_ids": tf.ensure_shape(input_ids, [None, max_seq_length]),
        "input_mask": tf.cast(column < lengths, tf.int32),
        "segment_ids": tf.cast((column >= second_segment_start) & (column < lengths), tf.int32),
    }


def sliced(segments: tf.RaggedTensor, indices: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Slices ragged rows.

    Args:
      segments: [B, (tokens)].
      indices: int64 [N], the row of each slice.
      starts: int64 [N], the start of each slice within its row.
      lengths: int64 [N], the length of each slice, which must not exceed the row.

    Returns:
      [N, (tokens)].
    """
    first = tf.gather(segments.row_starts(), indices) + starts
    return tf.gather(segments.values, tf.ragged.range(first, first + lengths))


def _first(segments: tf.RaggedTensor, keep: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `keep[i]` values of each row i."""
    starts = segments.row_starts()
    return tf.gather(segments.values, tf.ragged.range(starts, starts + keep))


def _first_and_last(segments: tf.RaggedTensor, keep: tf.Tensor) -> tf.RaggedTensor:
    """Returns `keep[i]` values of each row i: a quarter from its start, the rest from its end."""
    head = (keep + 2) // 4
    starts, ends = segments.row_starts(), segments.row_limits()
    indices = [tf.ragged.range(starts, starts + head), tf.ragged.range(ends - keep + head, ends)]
    return tf.gather(segments.values, tf.concat(indices, axis=1))


def without_common_padding(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Drops the columns of [B, S] inputs that are padding in every row, because they take time and have no effect."""
    # An empty batch keeps one column.
    longest = tf.maximum(tf.reduce_max(tf.reduce_sum(inputs["input_mask"], axis=1)), 1)
    return {name: values[:, :longest] for name, values in inputs.items()}
