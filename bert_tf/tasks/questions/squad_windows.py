"""Encodes questions and contexts as rows; splits a long context into several overlapping windows.

Paper: section 4.2. The windows are the same as in google-research/bert.

Letters: N rows (the windows of all contexts), D tokens of one text, T tokens of all contexts, M tokens of all windows.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.finetuning.task import Encoded, tokenize
from bert_tf.tasks.questions.squad_file import Question, answer_words, words_of
from bert_tf.tokenization import BertTokenizer

_TEXTS_PER_CALL = 1024
# Factor of a window's length in the score that compares windows, as in google-research/bert.
_LENGTH_FACTOR = 0.01


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The tokens of a text."""

    ids: np.ndarray  # token ids, int32 [D]
    # `starts`, `ends`: int32 [D], range of each token's characters in the text; the end is exclusive
    starts: np.ndarray
    ends: np.ndarray


class Windows(NamedTuple):
    """The windows of contexts; each window is a row."""

    questions: tf.Tensor  # int64 [N], index of each window's question, ascending
    # RaggedTensor int64 [N, (tokens)], indices of each window's tokens among the T tokens of all contexts
    tokens: tf.RaggedTensor
    offsets: tf.Tensor  # int64 [N], position of each window's first token in the window's row


def cut(
    firsts: tf.Tensor, lengths: tf.Tensor, question_lengths: tf.Tensor, max_seq_length: int, doc_stride: int,
    separators: int,
) -> Windows:  # fmt: skip
    """Cuts the contexts of B questions into windows; a context without tokens has no window.
    `firsts`: int64 [B], index of each context's first token among the tokens of all contexts.
    `lengths`: int64 [B], number of tokens of each context.
    `question_lengths`: int64 [B], number of tokens of each question.
    `max_seq_length`: maximum number of tokens in a row, S.
    `doc_stride`: number of tokens between the starts of two consecutive windows. A stride above the length of a full
      window means this length.
    `separators`: number of [SEP] between the question and the context."""
    room = max_seq_length - 2 - separators - question_lengths
    step = tf.minimum(room, doc_stride)
    counts = tf.where(lengths > 0, 1 + (tf.maximum(lengths - room, 0) + step - 1) // step, 0)
    questions = tf.repeat(tf.range(tf.size(lengths, tf.int64)), counts)
    number = tf.range(tf.size(questions, tf.int64)) - tf.gather(tf.cumsum(counts, exclusive=True), questions)
    start = number * tf.gather(step, questions)
    size = tf.minimum(tf.gather(room, questions), tf.gather(lengths, questions) - start)
    first = tf.gather(firsts, questions) + start
    offsets = tf.gather(question_lengths, questions) + 1 + separators  # after [CLS], the question and [SEP]
    return Windows(questions, tf.ragged.range(first, first + size), offsets)


def in_best_window(tokens: tf.RaggedTensor, num_tokens: tf.Tensor) -> tf.Tensor:
    """Finds the best window of each token; a token can be in several windows. A window's score for a token is the
    smaller of two counts, plus 0.01 times the window's length. The counts are the numbers of the window's tokens before
    and after this token. If several windows have the highest score, the first of these windows is the best.
    `tokens`: int64 [N, (tokens)], see `Windows`.
    `num_tokens`: int64 [], number of tokens of all contexts, T.
    Returns bool [M], for each token of each window, whether the window is the token's best window."""
    windows, flat = tokens.value_rowids(), tokens.values
    lengths = tf.gather(tokens.row_lengths(), windows)
    left = tf.range(tf.size(flat, tf.int64)) - tf.gather(tokens.row_starts(), windows)
    scores = tf.cast(tf.minimum(left, lengths - 1 - left), tf.float64)
    scores += tf.constant(_LENGTH_FACTOR, tf.float64) * tf.cast(lengths, tf.float64)
    is_best = scores == tf.gather(tf.math.unsorted_segment_max(scores, flat, num_tokens), flat)
    candidates = tf.where(is_best, windows, windows.dtype.max)
    return windows == tf.gather(tf.math.unsorted_segment_min(candidates, flat, num_tokens), flat)


def encode_questions(
    questions: Sequence[Question],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> Encoded:
    """Tokenizes questions, and splits their contexts into windows; each window is a row.
    `questions`: any number of questions; a question gets no row if its context has no token.
    `max_seq_length`: maximum number of tokens in a row.
    `doc_stride`: number of tokens between the starts of two consecutive windows.
    `max_query_length`: maximum number of tokens of a question; longer questions are truncated.
    Returns the columns:
    - `segment_a`: int32 [N, (tokens)], the token ids of the question.
    - `segment_b`: int32 [N, (tokens)], the token ids of the window.
    - `token_starts`, `token_ends`: int32 [N, (tokens)], for each token of the window, the range of the token's
      characters in the context; the end is exclusive.
    - `window_starts`: int32 [N], index of the window's first token among the tokens of the context.
    - `start_positions`, `end_positions`: int32 [N], positions of the answer's first token and last token in the row.
      Both are 0, the position of [CLS], if the window does not contain the whole answer.
    - `has_label`: float32 [N], 0 if the tokens of the answer are unknown, otherwise 1; see `answer_span`.
    - `example_ids`: int64 [N], index of the row's question."""
    numbers = {context: number for number, context in enumerate(dict.fromkeys(each.context for each in questions))}
    context_of = [numbers[question.context] for question in questions]
    contexts = _with_offsets(list(numbers), tokenizer)
    if not len(contexts[0].values):
        raise InputError(f"the context of each of the {len(questions)} questions is empty; check the file")
    tokens_of = list(map(Tokens, *map(_by_row, contexts)))
    asked = tokenize([question.text.encode() for question in questions], tokenizer)
    if long := np.count_nonzero(asked.row_lengths() > max_query_length):
        logging.warning("%d of %d questions have more than --max_query_length=%d tokens and are truncated",
                        long, len(questions), max_query_length)  # fmt: skip
    asked = asked[:, :max_query_length]
    answers = tokenize([each.answers[0].text.encode() if each.answers else b"" for each in questions], tokenizer)
    answered = zip(questions, context_of, _by_row(answers), strict=True)
    spans = [answer_span(question, tokens_of[number], ids) for question, number, ids in answered]
    without_token = [
        question.id
        for question, span in zip(questions, spans, strict=True)
        if span is None and question.answers and answer_words(question.context, question.answers[0])
    ]
    if without_token:
        logging.warning(
            "%d questions do not affect the loss, because their answers do not cover any token of the context: %s",
            len(without_token), ", ".join(without_token[:10]),
        )  # fmt: skip
    firsts, lengths = (tf.gather(of(), context_of) for of in (contexts[0].row_starts, contexts[0].row_lengths))
    separators = tokenizer.rules.separators
    windows = cut(firsts, lengths, asked.row_lengths(), max_seq_length, doc_stride, separators)
    starts = windows.tokens[:, :1].values - tf.gather(firsts, windows.questions)
    targets = tf.constant([(*(span or (-1, -1)), span is not None) for span in spans], tf.int64)
    first, last, is_known = tf.unstack(tf.gather(targets, windows.questions), axis=1)
    holds = (starts <= first) & (last < starts + windows.tokens.row_lengths())
    start_positions, end_positions = (tf.where(holds, at + windows.offsets - starts, 0) for at in (first, last))
    segment_b, token_starts, token_ends = (tf.gather(column.values, windows.tokens) for column in contexts)
    return {
        "segment_a": tf.gather(asked, windows.questions),
        "segment_b": segment_b,
        "token_starts": token_starts,
        "token_ends": token_ends,
        "window_starts": tf.cast(starts, tf.int32),
        "start_positions": tf.cast(start_positions, tf.int32),
        "end_positions": tf.cast(end_positions, tf.int32),
        "has_label": tf.cast(is_known, tf.float32),
        "example_ids": windows.questions.numpy(),
    }


def answer_span(question: Question, tokens: Tokens, answer_ids: np.ndarray) -> tuple[int, int] | None:
    """Returns the first and the last token of a question's first answer, as indices of the context's tokens. As in
    google-research/bert, the range covers all tokens of each word that overlaps the answer. If the range contains the
    tokens of the answer's text, the range is narrowed to the first of these tokens. In scripts without spaces, a whole
    sentence may be one word, so there the range is narrowed to the place nearest to `answer_start`.
    `tokens`: tokens of the context.
    `answer_ids`: int32, token ids of the answer's text.
    The result is the two indices; (-1, -1) for a question without an answer. None if the file lacks answers, if the
    answer is not at its `answer_start`, or if the answer covers no token."""
    if question.answers == ():
        return -1, -1
    if question.answers is None or (words := answer_words(question.context, question.answers[0])) is None:
        return None
    word_of_token = np.searchsorted(words_of(question.context).starts, tokens.starts, side="right") - 1
    first = int(np.searchsorted(word_of_token, words[0], side="left"))
    last = int(np.searchsorted(word_of_token, words[1], side="right")) - 1
    if last < first:
        return None
    wanted, ids = answer_ids.tolist(), tokens.ids.tolist()
    starts = [at for at in range(first, last + 2 - len(wanted)) if wanted and ids[at : at + len(wanted)] == wanted]
    if not starts:
        return first, last
    start = starts[0]
    if not words_of(question.context).are_words(*words):
        start = min(starts, key=lambda at: abs(int(tokens.starts[at]) - question.answers[0].start))
    return start, start + len(wanted) - 1


def _with_offsets(texts: Sequence[str], tokenizer: BertTokenizer) -> list[tf.RaggedTensor]:
    """Returns the token ids of texts, and the starts and ends of the tokens in the text, int32 [texts, (tokens)]."""
    encode = tf.function(tokenizer.encode_with_offsets, input_signature=[tf.TensorSpec([None], tf.string)])
    parts = [
        encode(tf.constant([text.encode() for text in texts[begin : begin + _TEXTS_PER_CALL]], tf.string))
        for begin in range(0, max(1, len(texts)), _TEXTS_PER_CALL)
    ]
    return [tf.cast(tf.concat(columns, 0), tf.int32) for columns in zip(*parts, strict=True)]


def _by_row(ragged: tf.RaggedTensor) -> list[np.ndarray]:
    return np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])


def windows_of(columns: Encoded, example_ids: np.ndarray, separators: int) -> tuple[Windows, tf.Tensor]:
    """Returns the windows of the rows of `encode_questions`, and the number of tokens of all contexts, T. A context
    that several questions share counts once for each question.
    `columns`: N rows of each column.
    `example_ids`: int64 [N], index of each row's question, ascending.
    `separators`: see `cut`."""
    starts, lengths = tf.cast(columns["window_starts"], tf.int64), columns["segment_b"].row_lengths()
    # The number of questions is unknown, because some questions have no row.
    sizes = tf.math.segment_max(starts + lengths, example_ids)
    first = tf.gather(tf.cumsum(sizes, exclusive=True), example_ids) + starts
    offsets = columns["segment_a"].row_lengths() + 1 + separators
    windows = Windows(tf.constant(example_ids), tf.ragged.range(first, first + lengths), offsets)
    return windows, tf.reduce_sum(sizes)
