"""Packs tokenized segments into the rows that the encoder reads, [CLS] A [SEP] B [SEP], and cuts long texts.

Some encoders have two [SEP] between A and B.

Paper: section 3 ("Input/Output Representations"), Figure 2.

Letters: N windows.
"""

from collections.abc import Mapping

import tensorflow as tf

# Values of --long_text, the flag that says how to treat a text that is longer than a row.
TRUNCATE, HEAD_TAIL, WINDOW = "truncate", "head_tail", "window"


def truncated_lengths(length_a: tf.Tensor, length_b: tf.Tensor, budget: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the segment lengths after truncation, which removes one token at a time from the longer segment's end.

    If both segments are equally long, a token of B is removed, as in the original.

    Args:
      length_a: int64 [B], number of tokens in A.
      length_b: int64 [B], number of tokens in B.
      budget: maximum sum of the two lengths.

    Returns:
      keep_a: int64 [B], the length of A after truncation.
      keep_b: int64 [B], the length of B after truncation.
    """
    half_up, half_down = (budget + 1) // 2, budget // 2
    keep_a = tf.minimum(length_a, tf.maximum(budget - length_b, half_up))
    keep_b = tf.minimum(length_b, tf.maximum(budget - length_a, half_down))
    return keep_a, keep_b


def kept_lengths(
    length_a: tf.Tensor, length_b: tf.Tensor, max_seq_length: int, separators: int = 1
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes how many tokens of each segment fit into a row with [CLS] and [SEP].

    Args:
      length_a: int64 [B], number of tokens in A.
      length_b: int64 [B], number of tokens in B; 0 for a row without B.
      max_seq_length: row length S.
      separators: number of [SEP] between A and B.

    Returns:
      keep_a: int64 [B], the number of kept tokens of A.
      keep_b: int64 [B], the number of kept tokens of B.
    """
    paired_a, paired_b = truncated_lengths(length_a, length_b, max_seq_length - 2 - separators)
    return tf.where(length_b > 0, paired_a, tf.minimum(length_a, max_seq_length - 2)), paired_b


def pack(
    segment_a: tf.RaggedTensor,
    segment_b: tf.RaggedTensor | None,
    *,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
    pad_id: int = 0,
    truncation_side: str = "right",
    has_token_types: bool = True,
    separators: int = 1,
    with_tail: bool = False,
) -> dict[str, tf.Tensor]:
    """Packs one or two segments per row into fixed-length model inputs.

    A row with an empty B is [CLS] A [SEP].

    Args:
      segment_a: int32 [B, (tokens)].
      segment_b: int32 [B, (tokens)], or None for single-text tasks.
      max_seq_length: row length S.
      cls_id: id of [CLS].
      sep_id: id of [SEP].
      pad_id: id of [PAD].
      truncation_side: "right" if a segment that is too long keeps its head, "left" if it keeps its tail.
      has_token_types: whether B has segment 1.
      separators: number of [SEP] between A and B.
      with_tail: whether a segment that is too long keeps its head and its tail. A quarter of the kept tokens, rounded,
        then comes from the head. The number of kept tokens is the same.

    Returns:
      A dict of `input_ids`, `input_mask` and `segment_ids`, int32 [B, S] each.
    """
    # One gather fetches every token by its index. Concatenating ragged tensors would take four times as long to trace.
    length_a = segment_a.row_lengths()
    length_b = tf.zeros_like(length_a) if segment_b is None else segment_b.row_lengths()
    keep_a, keep_b = kept_lengths(length_a, length_b, max_seq_length, separators)
    has_b, keep_a, keep_b = (_column(value) for value in (length_b > 0, keep_a, keep_b))
    end_a = keep_a + 1
    start_b = end_a + separators
    end_b = start_b + keep_b
    last = tf.where(has_b, end_b, end_a)
    column = tf.range(max_seq_length)[tf.newaxis]  # [1, S]

    tokens = [segment_a.values] if segment_b is None else [segment_a.values, segment_b.values]
    values = tf.concat([*tokens, [pad_id, cls_id, sep_id]], axis=0)
    pad = tf.size(values) - 3
    cut = HEAD_TAIL if with_tail else truncation_side
    index = tf.where(column < end_a, _index(segment_a, keep_a, column - 1, cut), pad)
    if segment_b is not None:
        index_b = tf.size(segment_a.values) + _index(segment_b, keep_b, column - start_b, cut)
        index = tf.where(column < start_b, index, tf.where(column < end_b, index_b, pad))
    is_separator = ((column >= end_a) & (column < tf.where(has_b, start_b, end_a + 1))) | (column == last)
    index = tf.where(column == 0, pad + 1, tf.where(is_separator, pad + 2, index))
    rows = {
        "input_ids": tf.ensure_shape(tf.gather(values, index), [None, max_seq_length]),
        "input_mask": tf.cast(column <= last, tf.int32),
        "segment_ids": tf.cast((column >= start_b) & (column <= last), tf.int32),
    }
    return rows if has_token_types else rows | {"segment_ids": tf.zeros_like(rows["segment_ids"])}


def _column(value: tf.Tensor) -> tf.Tensor:
    return tf.cast(value, tf.bool if value.dtype == tf.bool else tf.int32)[:, tf.newaxis]  # [B, 1]


def _index(segments: tf.RaggedTensor, keep: tf.Tensor, places: tf.Tensor, cut: str) -> tf.Tensor:
    """Returns each column's token as an index into `segments.values`, int32 [B, S]."""
    if cut != "right":
        head = 0 if cut == "left" else (keep + 2) // 4
        places += tf.where(places >= head, _column(segments.row_lengths()) - keep, 0)
    return _column(segments.row_starts()) + places


def sliced(segments: tf.RaggedTensor, indices: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Slices ragged rows.

    Args:
      segments: [B, (tokens)].
      indices: int64 [N], the row of each slice.
      starts: int64 [N], the start of each slice within its row.
      lengths: int64 [N], the length of each slice; a slice must not extend beyond its row.

    Returns:
      [N, (tokens)].
    """
    first = tf.gather(segments.row_starts(), indices) + starts
    return tf.gather(segments.values, tf.ragged.range(first, first + lengths))


def without_common_padding(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Drops columns of [B, S] inputs that are padding in every row, because such columns only take time."""
    # An empty batch keeps one column.
    longest = tf.maximum(tf.reduce_max(tf.reduce_sum(inputs["input_mask"], axis=1)), 1)
    return {name: values[:, :longest] for name, values in inputs.items()}


def cut_windows(
    segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None, *, max_seq_length: int, stride: int,
    truncation_side: str = "right", separators: int = 1,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None, tf.Tensor]:  # fmt: skip
    """Cuts the longer segment of each example into windows. Each window also gets the other segment, truncated.

    A window has as many tokens of the longer segment as truncation would keep. The last window ends at the end of the
    segment, so every window of a long text is full. If both segments are equally long, B is cut.

    Args:
      segment_a: int32 [B, (tokens)].
      segment_b: int32 [B, (tokens)], or None for single texts.
      max_seq_length: number of tokens in a row, including special tokens.
      stride: number of tokens between the starts of two consecutive windows. A stride above the window's length means
        this length; 0 means half of this length.
      truncation_side: the side at which the other segment is truncated; see `pack`.
      separators: see `pack`.

    Returns:
      segment_a: int32 [N, (tokens)], the part of A in each window.
      segment_b: int32 [N, (tokens)], the part of B in each window; None for single texts. Both parts fit into a row.
      examples: int64 [N], ascending, the index of each window's example. An example that fits into a row is one window.
    """
    length_a = segment_a.row_lengths()
    length_b = tf.zeros_like(length_a) if segment_b is None else segment_b.row_lengths()
    keep_a, keep_b = kept_lengths(length_a, length_b, max_seq_length, separators)
    cuts_b = (length_b >= length_a) & (length_b > 0)
    length, window = tf.where(cuts_b, length_b, length_a), tf.where(cuts_b, keep_b, keep_a)
    step = tf.maximum(tf.minimum(tf.cast(stride, tf.int64), window) if stride else (window + 1) // 2, 1)
    windows = 1 + (length - window + step - 1) // step  # [B]
    examples = tf.repeat(tf.range(segment_a.nrows()), windows)  # [N]
    number = tf.range(tf.size(examples, tf.int64)) - tf.gather(tf.cumsum(windows, exclusive=True), examples)
    start = tf.minimum(number * tf.gather(step, examples), tf.gather(length - window, examples))
    cuts_b, first_a = tf.gather(cuts_b, examples), tf.zeros_like(start)
    first_b = first_a
    if truncation_side == "left":
        first_a, first_b = (tf.gather(rest, examples) for rest in (length_a - keep_a, length_b - keep_b))
    a = sliced(segment_a, examples, tf.where(cuts_b, first_a, start), tf.gather(keep_a, examples))
    if segment_b is None:
        return a, None, examples
    b = sliced(segment_b, examples, tf.where(cuts_b, start, first_b), tf.gather(keep_b, examples))
    return a, b, examples
