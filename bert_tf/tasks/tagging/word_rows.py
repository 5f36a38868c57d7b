"""Splits sentences into rows of tokens in graph operations, so that training and serving share one rule.

Paper: section 5.3. The first token of each word is labeled, and rows can be filled with context from the document.

Letters: W words of all sentences, N rows.
"""

from typing import NamedTuple

import tensorflow as tf

NUM_SPECIAL = 2  # the tokens of a row that belong to no word: [CLS] and [SEP]


class WordRows(NamedTuple):
    """The rows of sentences. Each word is labeled in exactly one row; in other rows, the word may be context."""

    tokens: tf.RaggedTensor  # RaggedTensor int32 [N, (tokens)], token ids without [CLS] and [SEP]
    # RaggedTensor int64 [N, (words)], for each labeled word, the position of its first token in the row; position 0 is
    # [CLS]. The labeled words are in the order of the text.
    words: tf.RaggedTensor
    sentences: tf.Tensor  # int64 [N], index of each row's sentence, ascending


def word_tokens(ids: tf.RaggedTensor, unk_id: int, room: int) -> tf.RaggedTensor:
    """Returns words with 1 to `room` tokens each, int32 [words, (tokens)], from the token ids of the words. A word
    without tokens, such as a control character, becomes [UNK], so that it gets a tag. A word that does not fit into a
    row is truncated."""
    lacks = tf.cast(ids.row_lengths() == 0, tf.int64)
    unknown = tf.fill([tf.reduce_sum(lacks)], unk_id)
    ids = tf.concat([ids, tf.RaggedTensor.from_row_lengths(unknown, lacks, validate=False)], 1)
    return ids[:, :room]


def make_rows(words: tf.RaggedTensor, sentences: tf.Tensor, room: int, documents: tf.Tensor | None = None) -> WordRows:
    """Splits sentences into rows.
    `words`: int32 [W, (tokens)], the token ids of each word; a word has from 1 to `room` tokens.
    `sentences`: int64 [B + 1]; sentence b has the words from sentences[b] to sentences[b + 1] (exclusive).
    `room`: number of tokens that fit into a row, without [CLS] and [SEP].
    `documents`: int64 [D + 1]; document d has the sentences from documents[d] to documents[d + 1] (exclusive), and the
      neighboring sentences of a document fill the rows. None: rows contain only words of their own sentence."""
    offsets = words.row_splits
    first, last, sentence = _parts(offsets, sentences, room)
    scopes, scope = sentences, sentence
    if documents is not None:
        scopes = tf.gather(sentences, documents)
        scope = tf.gather(tf.ragged.row_splits_to_segment_ids(documents), sentence)
    begin, end = _with_context(first, last, tf.gather(scopes, scope), tf.gather(scopes, scope + 1), offsets, room)
    of_tokens = tf.ragged.range(tf.gather(offsets, begin), tf.gather(offsets, end))
    starts = tf.gather(offsets, tf.ragged.range(first, last))
    places = 1 + starts.values - tf.gather(tf.gather(offsets, begin), starts.value_rowids())
    return WordRows(tf.gather(words.values, of_tokens), starts.with_values(places), sentence)


def _parts(offsets: tf.Tensor, sentences: tf.Tensor, room: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts sentences into parts. Each row labels the words of one part. A sentence that does not fit into a row is cut
    into parts of half a row. The other half of the row is context, so that the model reads words on both sides of a
    cut."""
    ends = sentences[1:]
    owner = tf.ragged.row_splits_to_segment_ids(sentences)  # [W]
    word, end = tf.range(tf.size(owner, tf.int64)), tf.gather(ends, owner)
    fits = tf.gather(offsets, ends) - tf.gather(offsets, sentences[:-1]) <= room
    half = tf.searchsorted(offsets, offsets[:-1] + room // 2, side="right", out_type=tf.int64) - 1
    following = tf.where(tf.gather(fits, owner), end, tf.minimum(tf.maximum(half, word + 1), end))
    following = tf.concat([following, [0]], 0)  # an empty last sentence begins after the last word

    def step(number, at, begins):
        return number + 1, tf.where(at < ends, tf.gather(following, at), at), begins.write(number, at)

    begins = tf.TensorArray(tf.int64, size=0, dynamic_size=True, element_shape=[None])
    start = (0, sentences[:-1], begins)
    *_, begins = tf.while_loop(lambda number, at, begins: tf.reduce_any(at < ends), step, start)
    # A sentence that is completely cut stays at its end until all other sentences are cut.
    first = tf.transpose(tf.cond(begins.size() > 0, begins.stack, lambda: tf.zeros([0, tf.size(ends)], tf.int64)))
    sentence = tf.where(first < ends[:, tf.newaxis])[:, 0]
    first = tf.boolean_mask(first, first < ends[:, tf.newaxis])
    return first, tf.gather(following, first), sentence


def _with_context(first, last, low, high, offsets, room) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds context on both sides of the labeled words of each row, but not beyond the words from `low` to `high`. The
    context consists of whole words. If one side does not need its space, the other side gets the rest of the space."""
    low, first, last, high = (tf.gather(offsets, at) for at in (low, first, last, high))
    spare, behind = room - (last - first), high - last
    before = tf.minimum(first - low, tf.maximum(spare // 2, spare - behind))
    begin = tf.searchsorted(offsets, first - before, side="left", out_type=tf.int64)
    spare -= first - tf.gather(offsets, begin)
    end = tf.searchsorted(offsets, last + tf.minimum(spare, behind), side="right", out_type=tf.int64) - 1
    return begin, end
