"""Converts words to rows, and predicted labels to tags, in graph operations.

`tagging_rows` and `tag_schemes` do the same in Python.

Paper: section 5.3.

Letters: W words of all sentences.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.tasks.tagging import tag_schemes


class TagRows(NamedTuple):
    """The rows of sentences. Each word is labeled in exactly one row; in other rows, the word may be context.

    Attributes:
      tokens: RaggedTensor int32 [N, (tokens)], token ids without [CLS] and [SEP].
      words: RaggedTensor int64 [N, (words)], for each labeled word, the position of its first token in the row;
        position 0 is [CLS]. The labeled words are in the order of the text.
    """

    tokens: tf.RaggedTensor
    words: tf.RaggedTensor


def make_rows(words: tf.RaggedTensor, sentences: tf.Tensor, room: int) -> TagRows:
    """Cuts sentences into rows in the same way as `tagging_rows.make_rows` without `document_context`.

    Args:
      words: int32 [W, (tokens)], the token ids of each word; a word has from 1 to `room` tokens.
      sentences: int64 [B + 1]; sentence b has the words from sentences[b] to sentences[b + 1] (exclusive).
      room: number of tokens that fit into a row, without [CLS] and [SEP].
    """
    offsets = words.row_splits
    first, last, sentence = _parts(offsets, sentences, room)
    begin, end = _with_context(first, last, sentences, sentence, offsets, room)
    of_tokens = tf.ragged.range(tf.gather(offsets, begin), tf.gather(offsets, end))
    starts = tf.gather(offsets, tf.ragged.range(first, last))
    places = 1 + starts.values - tf.gather(tf.gather(offsets, begin), starts.value_rowids())
    return TagRows(tf.gather(words.values, of_tokens), starts.with_values(places))


def _parts(offsets: tf.Tensor, sentences: tf.Tensor, room: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts sentences into parts. Each row labels the words of one part.

    A sentence that does not fit into a row is cut into parts of half a row; the other half of the row is context.
    """
    ends = sentences[1:]
    owner = tf.ragged.row_splits_to_segment_ids(sentences)  # [W]
    word, end = tf.range(tf.size(owner, tf.int64)), tf.gather(ends, owner)
    fits = tf.gather(offsets, ends) - tf.gather(offsets, sentences[:-1]) <= room
    half = tf.searchsorted(offsets, offsets[:-1] + room // 2, side="right", out_type=tf.int64) - 1
    following = tf.where(tf.gather(fits, owner), end, tf.minimum(tf.maximum(half, word + 1), end))
    following = tf.concat([following, [0]], 0)  # an empty last sentence begins after the last word

    def step(number, at, found):
        return number + 1, tf.where(at < ends, tf.gather(following, at), at), found.write(number, at)

    found = tf.TensorArray(tf.int64, size=0, dynamic_size=True, element_shape=[None])
    start = (0, sentences[:-1], found)
    *_, found = tf.while_loop(lambda number, at, found: tf.reduce_any(at < ends), step, start)
    # A sentence that is completely cut stays at its end until all other sentences are cut.
    first = tf.transpose(tf.cond(found.size() > 0, found.stack, lambda: tf.zeros([0, tf.size(ends)], tf.int64)))
    sentence = tf.where(first < ends[:, tf.newaxis])[:, 0]
    first = tf.boolean_mask(first, first < ends[:, tf.newaxis])
    return first, tf.gather(following, first), sentence


def _with_context(first, last, sentences, sentence, offsets, room) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds context on both sides of the labeled words of each row.

    The context consists of whole words. If one side does not need its space, the other side gets the rest of the space.
    """
    low, high = tf.gather(sentences, sentence), tf.gather(sentences, sentence + 1)
    low, first, last, high = (tf.gather(offsets, at) for at in (low, first, last, high))
    spare, behind = room - (last - first), high - last
    before = tf.minimum(first - low, tf.maximum(spare // 2, spare - behind))
    begin = tf.searchsorted(offsets, first - before, side="left", out_type=tf.int64)
    spare -= first - tf.gather(offsets, begin)
    end = tf.searchsorted(offsets, last + tf.minimum(spare, behind), side="right", out_type=tf.int64) - 1
    return begin, end


def tags(labels: tf.Tensor, sentences: tf.Tensor, names: Sequence[str], scheme: str) -> tf.Tensor:
    """Returns the tags of the predicted entities in a tag scheme; see `TaggingTask.predicted_tags`.

    Args:
      labels: int32 [W], indices into `names`.
      sentences: int64 [B + 1], see `make_rows`.
      scheme: one of the schemes in `tag_schemes`.

    Returns:
      string [W], the tag of each word.
    """
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
