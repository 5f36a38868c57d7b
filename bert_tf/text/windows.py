"""Cuts texts that are longer than a row into overlapping windows; each window becomes a row.

Letters: B examples, N windows.
"""

import tensorflow as tf

from bert_tf.text.packing import kept_lengths, sliced


def cut_windows(
    segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None, *, max_seq_length: int, stride: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None, tf.Tensor]:
    """Cuts the longer segment of each example into windows. Each window also gets the other segment, truncated.

    A window has as many tokens of the longer segment as truncation would keep. The last window ends at the end of the
    segment, so every window of a long text is full. If both segments are equally long, B is cut.

    Args:
      segment_a: int32 [B, (tokens)].
      segment_b: int32 [B, (tokens)], or None for single texts.
      max_seq_length: number of tokens in a row, including special tokens.
      stride: number of tokens between the starts of two consecutive windows. A stride above the window's length means
        this length; 0 means half of this length.

    Returns:
      segment_a: int32 [N, (tokens)], the part of A in each window.
      segment_b: int32 [N, (tokens)], the part of B in each window; None for single texts. Both parts fit into a row.
      examples: int64 [N], ascending, the index of each window's example. An example that fits into a row is one window.
    """
    length_a = segment_a.row_lengths()
    length_b = tf.zeros_like(length_a) if segment_b is None else segment_b.row_lengths()
    keep_a, keep_b = kept_lengths(length_a, length_b, max_seq_length)
    cuts_b = (length_b >= length_a) & (length_b > 0)
    length, window = tf.where(cuts_b, length_b, length_a), tf.where(cuts_b, keep_b, keep_a)
    step = tf.maximum(tf.minimum(tf.cast(stride, tf.int64), window) if stride else (window + 1) // 2, 1)
    windows = 1 + (length - window + step - 1) // step  # [B]
    examples = tf.repeat(tf.range(segment_a.nrows()), windows)  # [N]
    number = tf.range(tf.size(examples, tf.int64)) - tf.gather(tf.cumsum(windows, exclusive=True), examples)
    start = tf.minimum(number * tf.gather(step, examples), tf.gather(length - window, examples))
    cuts_b, beginning = tf.gather(cuts_b, examples), tf.zeros_like(start)
    a = sliced(segment_a, examples, tf.where(cuts_b, beginning, start), tf.gather(keep_a, examples))
    if segment_b is None:
        return a, None, examples
    b = sliced(segment_b, examples, tf.where(cuts_b, start, beginning), tf.gather(keep_b, examples))
    return a, b, examples
