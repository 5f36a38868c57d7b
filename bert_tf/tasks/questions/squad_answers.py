"""Decodes logits to answers: finds the best spans in a question's windows, and the texts of these spans.

Paper: sections 4.2 and 4.3. The answers are the same as in google-research/bert ("the original" in comments).

Letters: N rows (the windows of all contexts), W windows of one context, T tokens of all contexts, M tokens of all
windows, K spans of all windows, n candidates for the start and for the end.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.task import Encoded
from bert_tf.tasks.questions.squad_file import Question, words_of
from bert_tf.tasks.questions.squad_windows import Tokens, Windows, in_best_window, windows_of
from bert_tf.tokenization import BertTokenizer

# The score of "no answer" for a question without a window, as in the original.
NULL_WITHOUT_WINDOW = 1e6
# The answer if there is no valid span, as in the original.
_NO_SPAN = "empty"
# The columns with a window's tokens, in the order of the fields of `Tokens`.
_TOKENS = ("segment_b", "token_starts", "token_ends")
# Number of questions to decode at once. The pairs of starts and ends of all these questions are in memory together.
_AT_ONCE = 128


@dataclasses.dataclass(frozen=True)
class Decoding:
    """Options for decoding logits to answers; each field has the value of a flag of `run_squad`."""

    # number of start positions and of end positions to try in each window, and number of answers to keep
    n_best_size: int = 20
    max_answer_length: int = 30  # maximum number of tokens in an answer
    has_unanswerable: bool = False  # value of `--version_2_with_negative`
    exact_offsets: bool = False  # value of `--exact_answer_offsets`
    verbose: bool = False  # value of `--verbose_logging`


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A possible answer."""

    text: str  # text of the answer; "" for no answer
    # `start_logit`, `end_logit`: start logit of the answer's first token, and end logit of its last token
    start_logit: float
    end_logit: float
    # range of the answer's characters in the context; None unless the decoding has `exact_offsets`
    offsets: tuple[int, int] | None = None

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True)
class SpanAnswers:
    """The best answers to a question."""

    # the candidates by descending score; "no answer" may be the last candidate, whatever its score
    candidates: tuple[Candidate, ...]
    # the score of "no answer" minus the best answer's score; None if every question has an answer
    null_odds: float | None = None

    @property
    def best_text(self) -> str:
        """The text of the best candidate other than "no answer"; "" if there is no such candidate."""
        return next((candidate.text for candidate in self.candidates if candidate.text), "")

    def text(self, null_threshold: float) -> str:
        """Returns the text of the predicted answer; "" (no answer) if `null_odds` exceeds the threshold."""
        if self.null_odds is None:
            return self.candidates[0].text
        return "" if self.null_odds > null_threshold else self.best_text

    @property
    def probabilities(self) -> list[float]:
        """The softmax over the scores of the candidates."""
        best = max(candidate.score for candidate in self.candidates)
        scores = [math.exp(candidate.score - best) for candidate in self.candidates]
        return [score / sum(scores) for score in scores]


class Spans(NamedTuple):
    """Spans that may be answers, sorted by question, then by descending score, then by window."""

    questions: tf.Tensor  # int64 [K], index of each span's question, ascending
    logits: tf.Tensor  # float64 [K, 2], start logit and end logit; their sum is the score
    # `starts`, `ends`: int64 [K], indices of the first and the last token among the M tokens of all windows
    starts: tf.Tensor
    ends: tf.Tensor


def best_spans(logits: tf.Tensor, windows: Windows, num_tokens: tf.Tensor, decoding: Decoding) -> Spans:
    """Finds the valid spans with the highest logits. The function uses only graph operations, because the served model
    calls it too.
    `logits`: float32 [N, S, 2], logits of start and end; they are very low at positions without a token.
    `windows`: N windows.
    `num_tokens`: int64 [], number of tokens of all contexts, T."""
    # If logits are equal, top_k returns them in the order of their positions.
    count = tf.minimum(decoding.n_best_size, tf.shape(logits)[1])
    values, positions = tf.math.top_k(tf.transpose(logits, [0, 2, 1]), count)  # [N, 2, n]
    places = tf.cast(positions, tf.int64) - windows.offsets[:, tf.newaxis, tf.newaxis]
    is_inside = (places >= 0) & (places < windows.tokens.row_lengths()[:, tf.newaxis, tf.newaxis])
    places = tf.where(is_inside, places, 0) + windows.tokens.row_starts()[:, tf.newaxis, tf.newaxis]  # among the M
    is_best = in_best_window(windows.tokens, num_tokens)
    starts, ends = places[:, 0, :, tf.newaxis], places[:, 1, tf.newaxis, :]  # [N, n, 1] and [N, 1, n]
    is_start = is_inside[:, 0, :, tf.newaxis] & tf.gather(is_best, starts)
    lengths = ends - starts + 1  # [N, n, n]
    fits = (lengths > 0) & (lengths <= decoding.max_answer_length)
    window, first, last = tf.unstack(tf.where(is_start & is_inside[:, 1, tf.newaxis, :] & fits), axis=1)  # [K] each
    side = tf.zeros_like(window)
    start, end = tf.stack([window, side, first], 1), tf.stack([window, side + 1, last], 1)
    scores = tf.cast(tf.stack([tf.gather_nd(values, start), tf.gather_nd(values, end)], 1), tf.float64)  # [K, 2]
    questions = tf.gather(windows.questions, window)
    # Both sorts are stable, so the second sort keeps the order of the scores within a question.
    order = tf.argsort(tf.reduce_sum(scores, 1), direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(questions, order), stable=True))
    columns = questions, scores, tf.gather_nd(places, start), tf.gather_nd(places, end)
    return Spans(*(tf.gather(column, order) for column in columns))


def decode(
    questions: Sequence[Question],
    columns: Encoded,
    example_ids: np.ndarray,
    logits: np.ndarray,
    tokenizer: BertTokenizer,
    decoding: Decoding,
) -> list[SpanAnswers]:
    """Finds the best answers to questions.
    `columns`: columns of `encode_questions`, with N rows.
    `example_ids`: int64 [N], the index of each row's question, ascending.
    `logits`: float32 [N, S, 2], logits of start and end."""
    bounds = np.searchsorted(example_ids, np.arange(len(questions) + 1)).tolist()
    answers = []
    for begin in range(0, len(questions), _AT_ONCE):
        end = min(begin + _AT_ONCE, len(questions))
        rows = slice(bounds[begin], bounds[end])
        part = {name: columns[name][rows] for name in (*_TOKENS, "segment_a", "window_starts")}
        windows, num_tokens = windows_of(part, example_ids[rows] - begin, tokenizer.rules.separators)
        spans = Spans(*(value.numpy() for value in best_spans(logits[rows], windows, num_tokens, decoding)))
        tokens = Tokens(*(part[name].values.numpy() for name in _TOKENS))
        ends = np.searchsorted(spans.questions, np.arange(end - begin + 1))
        for number, question in enumerate(questions[begin:end]):
            own = slice(ends[number], ends[number + 1])
            columns_of_spans = spans.starts[own], spans.ends[own], *spans.logits[own].T
            of_question = zip(*(column.tolist() for column in columns_of_spans), strict=True)
            nulls = logits[bounds[begin + number] : bounds[begin + number + 1], 0].astype(np.float64)  # [W, 2]
            answers.append(_answers(of_question, nulls, question, tokens, tokenizer, decoding))
    return answers


def _answers(
    spans: Iterator[tuple], nulls: np.ndarray, question: Question, tokens: Tokens, tokenizer: BertTokenizer,
    decoding: Decoding,
) -> SpanAnswers:  # fmt: skip
    """Returns the answers to a question; `nulls` [W, 2] contains the logits of [CLS] in the question's windows."""
    null = None
    if decoding.has_unanswerable:
        lowest = nulls[np.argmin(nulls.sum(axis=1))].tolist() if len(nulls) else (NULL_WITHOUT_WINDOW, 0.0)
        null = Candidate("", *lowest)
    candidates = _best(_with_null(spans, null), question, tokens, tokenizer, decoding)
    if null is not None and all(candidate.text for candidate in candidates):
        candidates.append(null)
    if not candidates:
        candidates.append(Candidate("" if decoding.exact_offsets else _NO_SPAN, 0.0, 0.0))
    if null is None:
        return SpanAnswers(tuple(candidates))
    best = next((candidate for candidate in candidates if candidate.text), None)
    # The operations are in the same order as in the original, so that the floating-point results are equal.
    odds = null.score - best.start_logit - best.end_logit if best else null.score
    return SpanAnswers(tuple(candidates), odds)


def _with_null(spans: Iterator[tuple], null: Candidate | None) -> Iterator[tuple | Candidate]:
    """Yields the spans; inserts "no answer" after all spans whose score is at least the score of "no answer"."""
    for span in spans:
        if null is not None and null.score > span[2] + span[3]:
            yield null
            null = None
        yield span
    if null is not None:
        yield null


def _best(
    spans: Iterator[tuple | Candidate],
    question: Question,
    tokens: Tokens,
    tokenizer: BertTokenizer,
    decoding: Decoding,
) -> list[Candidate]:
    candidates: list[Candidate] = []
    seen: set[str] = set()
    for span in spans:
        if len(candidates) >= decoding.n_best_size:
            break
        if isinstance(span, Candidate):
            candidates.append(span)
            seen.add("")
            continue
        first, last, start_logit, end_logit = span
        if decoding.exact_offsets:
            offsets = int(tokens.starts[first]), int(tokens.ends[last])
            text = question.context[slice(*offsets)]
        else:
            offsets, text = None, _aligned(question.context, tokens, first, last, tokenizer, decoding.verbose)
        if text not in seen:
            candidates.append(Candidate(text, start_logit, end_logit, offsets))
            seen.add(text)
    return candidates


def _aligned(context: str, tokens: Tokens, first: int, last: int, tokenizer: BertTokenizer, verbose: bool) -> str:
    """Returns the text of a span of tokens as in the original. The text consists of the words that contain the tokens,
    without the characters outside the tokens. For a span with [UNK], the original returns the whole words, which may be
    a whole passage in scripts without spaces; there, and with a Unigram model, the answer has exactly the characters of
    the tokens."""
    from official.nlp.data.squad_lib import get_final_text

    text = " ".join(tokenizer.to_tokens(tokens.ids[first : last + 1]))
    text = " ".join(text.replace(" ##", "").replace("##", "").split())
    words = words_of(context)
    begin, end = words.at(int(tokens.starts[first])), words.at(int(tokens.starts[last]))
    has_unknown = tokenizer.unk_id in tokens.ids[first : last + 1]
    if tokenizer.rules.unigram or (has_unknown and not words.are_words(begin, end)):
        return context[int(tokens.starts[first]) : int(tokens.ends[last])]
    return get_final_text(text, " ".join(words.texts[begin : end + 1]), tokenizer.do_lower_case, verbose=verbose)
