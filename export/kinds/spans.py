"""Contexts to windows and logits to answers, in graph ops: what `squad_windows` and `squad_answers` do in NumPy.

Paper: sections 4.2 and 4.3.

Letters: B questions, N windows of all contexts, S sequence length, D tokens of all contexts, M tokens of all windows,
K spans of all windows, n starts and ends that are tried.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.tasks.questions.squad_answers import NULL_WITHOUT_WINDOW, Decoding
from bert_tf.tasks.questions.squad_windows import LENGTH_FACTOR
from export.kinds.characters import NOWHERE, Characters


class Contexts(NamedTuple):
    """The tokens of contexts.

    Attributes:
      ids: RaggedTensor int32 [B, (tokens)].
      starts, ends: int64 [D], range of each token in the characters of its context.
      characters: of the contexts.
    """

    ids: tf.RaggedTensor
    starts: tf.Tensor
    ends: tf.Tensor
    characters: Characters


class Windows(NamedTuple):
    """The windows of contexts, one row each.

    Attributes:
      questions: int64 [N], the question of each window, ascending.
      tokens: RaggedTensor int64 [N, (tokens)], indices of the window's tokens among all D.
      offsets: int64 [N], position in the row of the window's first token.
    """

    questions: tf.Tensor
    tokens: tf.RaggedTensor
    offsets: tf.Tensor


def cut(contexts: tf.RaggedTensor, question_lengths: tf.Tensor, max_seq_length: int, doc_stride: int) -> Windows:
    """Cuts contexts, [B, (tokens)], into windows beside questions of so many tokens, int64 [B], as training does."""
    lengths, room = contexts.row_lengths(), max_seq_length - 3 - question_lengths
    step = tf.minimum(room, doc_stride)
    counts = tf.where(lengths > 0, 1 + (tf.maximum(lengths - room, 0) + step - 1) // step, 0)
    questions = tf.repeat(tf.range(contexts.nrows()), counts)
    number = tf.range(tf.size(questions, tf.int64)) - tf.gather(tf.cumsum(counts, exclusive=True), questions)
    start = number * tf.gather(step, questions)
    size = tf.minimum(tf.gather(room, questions), tf.gather(lengths, questions) - start)
    first = tf.gather(contexts.row_starts(), questions) + start
    offsets = tf.gather(question_lengths, questions) + 2  # behind [CLS], the question and [SEP]
    return Windows(questions, tf.ragged.range(first, first + size), offsets)


def in_best_window(tokens: tf.RaggedTensor, num_tokens: tf.Tensor) -> tf.Tensor:
    """Finds the window in which each token has the most context on its shorter side; of equal ones, the first.

    Args:
      tokens: int64 [N, (tokens)], see `Windows`.
      num_tokens: int64 [], D.

    Returns:
      bool [M], whether a window is the best one for its token.
    """
    windows, flat = tokens.value_rowids(), tokens.values
    lengths = tf.gather(tokens.row_lengths(), windows)
    left = tf.range(tf.size(flat, tf.int64)) - tf.gather(tokens.row_starts(), windows)
    scores = tf.cast(tf.minimum(left, lengths - 1 - left), tf.float64)
    scores += tf.constant(LENGTH_FACTOR, tf.float64) * tf.cast(lengths, tf.float64)
    is_best = scores == tf.gather(tf.math.unsorted_segment_max(scores, flat, num_tokens), flat)
    candidates = tf.where(is_best, windows, windows.dtype.max)
    return windows == tf.gather(tf.math.unsorted_segment_min(candidates, flat, num_tokens), flat)


class _Spans(NamedTuple):
    """Spans of windows that may be answers, by question, the best first.

    Attributes:
      questions: int64 [K], ascending.
      logits: float64 [K, 2], of start and end; their sum is the score.
      starts, ends: int64 [K], characters of the context.
    """

    questions: tf.Tensor
    logits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


def decode(
    logits: tf.Tensor, contexts: Contexts, windows: Windows, decoding: Decoding, threshold: float
) -> dict[str, tf.Tensor]:
    """Finds the best answer to each question.

    Args:
      logits: float32 [N, S, 2], start and end; low where a row has no token.
      contexts: of the questions.
      windows: of the contexts.
      decoding: see `Decoding`; offsets are always exact.
      threshold: the odds of no answer above which there is none.

    Returns:
      See `ServedQuestions.answer`.
    """
    rows = contexts.ids.nrows()
    spans, null = _spans(logits, contexts, windows, decoding), _null_scores(logits, windows, rows)
    spans, texts = _distinct(spans, contexts.characters, null, decoding)
    first, end = (tf.searchsorted(spans.questions, tf.range(rows), side=side) for side in ("left", "right"))
    is_found = first < end  # [B]
    start_logit, end_logit = tf.unstack(_chosen(spans.logits, first, is_found), axis=1)
    score = start_logit + end_logit
    none, answered = tf.where(is_found, np.float64(-np.inf), np.float64(0)), is_found
    if decoding.has_unanswerable:
        odds = tf.where(is_found, null - start_logit - end_logit, null)
        none, answered = null, is_found & (odds <= threshold)
    # The softmax over the scores of all candidates, "no answer" among them.
    top = tf.maximum(none, tf.where(is_found, score, none))
    others = tf.exp(tf.reduce_sum(spans.logits, 1) - tf.gather(top, spans.questions))
    total = tf.math.unsorted_segment_sum(others, spans.questions, rows) + tf.exp(none - top)
    score = tf.where(answered, score, none)
    found = {
        "answer": tf.where(answered, _chosen(texts, first, is_found), ""),
        "score": tf.cast(score, tf.float32),
        "probability": tf.cast(tf.exp(score - top) / total, tf.float32),
        "start": tf.where(answered, tf.cast(_chosen(spans.starts, first, is_found), tf.int32), NOWHERE),
        "end": tf.where(answered, tf.cast(_chosen(spans.ends, first, is_found), tf.int32), NOWHERE),
    }
    return found | ({"null_odds": tf.cast(odds, tf.float32)} if decoding.has_unanswerable else {})


def _spans(logits: tf.Tensor, contexts: Contexts, windows: Windows, decoding: Decoding) -> _Spans:
    """Finds the valid spans in logits [N, S, 2]; of equal ones, those of an earlier window come first."""
    # Of equal logits, the first comes first.
    count = tf.minimum(decoding.n_best_size, tf.shape(logits)[1])
    values, positions = tf.math.top_k(tf.transpose(logits, [0, 2, 1]), count)  # [N, 2, n]
    places = tf.cast(positions, tf.int64) - windows.offsets[:, tf.newaxis, tf.newaxis]
    is_inside = (places >= 0) & (places < windows.tokens.row_lengths()[:, tf.newaxis, tf.newaxis])
    places = tf.where(is_inside, places, 0) + windows.tokens.row_starts()[:, tf.newaxis, tf.newaxis]  # among all M
    is_best = in_best_window(windows.tokens, tf.size(contexts.ids.values, tf.int64))
    starts, ends = places[:, 0, :, tf.newaxis], places[:, 1, tf.newaxis, :]  # [N, n, 1] and [N, 1, n]
    is_start = is_inside[:, 0, :, tf.newaxis] & tf.gather(is_best, starts)
    lengths = ends - starts + 1  # [N, n, n]
    fits = (lengths > 0) & (lengths <= decoding.max_answer_length)
    window, first, last = tf.unstack(tf.where(is_start & is_inside[:, 1, tf.newaxis, :] & fits), axis=1)  # [K] each
    side = tf.zeros_like(window)
    start, end = tf.stack([window, side, first], 1), tf.stack([window, side + 1, last], 1)
    scores = tf.stack([tf.gather_nd(values, start), tf.gather_nd(values, end)], 1)  # [K, 2]
    tokens = [tf.gather(windows.tokens.values, tf.gather_nd(places, at)) for at in (start, end)]
    questions, scores = tf.gather(windows.questions, window), tf.cast(scores, tf.float64)
    # Both sorts are stable.
    order = tf.argsort(tf.reduce_sum(scores, 1), direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(questions, order), stable=True))
    columns = questions, scores, tf.gather(contexts.starts, tokens[0]), tf.gather(contexts.ends, tokens[1])
    return _Spans(*(tf.gather(column, order) for column in columns))


def _null_scores(logits: tf.Tensor, windows: Windows, rows: tf.Tensor) -> tf.Tensor:
    """Returns the lowest score of "no answer", that of [CLS], in the windows of each question: float64 [B]."""
    found = tf.reduce_sum(tf.cast(logits[:, 0], tf.float64), 1)
    lowest = tf.math.unsorted_segment_min(found, windows.questions, rows)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(windows.questions), windows.questions, rows)
    return tf.where(counts > 0, lowest, NULL_WITHOUT_WINDOW)


def _distinct(spans: _Spans, characters: Characters, null: tf.Tensor, decoding: Decoding) -> tuple[_Spans, tf.Tensor]:
    """Keeps the best spans of each question whose texts differ, and returns their texts."""
    texts = characters.texts(spans.questions, spans.starts, spans.ends)
    number = tf.range(tf.size(texts))
    same = tf.unique(tf.strings.join([tf.strings.as_string(spans.questions), texts], " ")).idx
    is_first = tf.gather(tf.math.unsorted_segment_min(number, same, tf.size(texts)), same) == number
    before = tf.cumsum(tf.cast(is_first, tf.int32), exclusive=True)
    before -= tf.gather(before, tf.searchsorted(spans.questions, spans.questions))  # of the same question
    if decoding.has_unanswerable:  # "no answer" is a candidate before those with a lower score
        before += tf.cast(tf.reduce_sum(spans.logits, 1) < tf.gather(null, spans.questions), tf.int32)
    kept = tf.where(is_first & (before < decoding.n_best_size))[:, 0]
    return _Spans(*(tf.gather(column, kept) for column in spans)), tf.gather(texts, kept)


def _chosen(values: tf.Tensor, first: tf.Tensor, is_found: tf.Tensor) -> tf.Tensor:
    """Returns `values[first]` where it is found, else an empty value, by question: [B, ...] of [K, ...]."""
    values = tf.concat([values, tf.zeros([1, *values.shape[1:]], values.dtype)], 0)
    return tf.gather(values, tf.where(is_found, first, tf.shape(values)[0] - 1))
