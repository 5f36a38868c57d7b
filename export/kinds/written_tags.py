"""Converts predicted labels to the tags of a tag scheme in graph operations; `tag_schemes` does the same in Python.

Letters: W words of all sentences.
"""

from collections.abc import Sequence

import tensorflow as tf

from bert_tf.tasks.tagging import tag_schemes


def tags(labels: tf.Tensor, sentences: tf.Tensor, names: Sequence[str], scheme: str) -> tf.Tensor:
    """Returns the tags of the predicted entities in a tag scheme; see `TaggingTask.predicted_tags`.
    `labels`: int32 [W], indices into `names`.
    `sentences`: int64 [B + 1]; sentence b has the words from sentences[b] to sentences[b + 1] (exclusive).
    `scheme`: one of the schemes in `tag_schemes`.
    Returns string [W], the tag of each word."""
    prefixes, types = zip(*map(tag_schemes.split_tag, names), strict=True)
    known = sorted(set(types))
    prefix, type_ = tf.gather(list(prefixes), labels), tf.gather([known.index(name) for name in types], labels)
    word = tf.range(tf.size(labels, tf.int64))
    is_first = tf.gather(sentences, tf.ragged.row_splits_to_segment_ids(sentences)) == word
    before = tf.where(is_first, tag_schemes.OUTSIDE, tf.roll(prefix, 1, 0))
    same = type_ == tf.roll(type_, 1, 0)
    # `tag_schemes.entities` follows the same rule.
    continues = _among(prefix, "IE") & _among(before, "BI") & same
    ends = ~tf.concat([continues[1:], [False]], 0)[: tf.size(labels)]
    if scheme == tag_schemes.IOB1:
        written = tf.where(~continues & (before != tag_schemes.OUTSIDE) & same, "B", "I")
    elif scheme == tag_schemes.BIOES:
        written = tf.where(continues, tf.where(ends, "E", "I"), tf.where(ends, "S", "B"))
    else:
        written = tf.where(continues, "I", "B")
    named = tf.gather([f"-{name}" if name else "" for name in known], type_)
    return tf.where(prefix == tag_schemes.OUTSIDE, tag_schemes.OUTSIDE, tf.strings.join([written, named]))


def _among(prefix: tf.Tensor, prefixes: str) -> tf.Tensor:
    return tf.reduce_any(prefix[:, tf.newaxis] == tf.constant(list(prefixes)), 1)
