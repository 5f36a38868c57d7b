"""Served question answering: finds the answer to a question in a context.

Paper: section 3.2, Figure 4 (c); sections 4.2 and 4.3.

Letters: B questions, N windows of all contexts, D tokens of all contexts, M tokens of all windows, K spans of all
windows.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.questions import squad_results, squad_task
from bert_tf.tasks.questions.squad_answers import NULL_WITHOUT_WINDOW, Decoding, Spans, best_spans
from bert_tf.tasks.questions.squad_windows import Windows, cut
from bert_tf.text.characters import NOWHERE, Characters
from export.kinds import row_groups
from export.kinds.base import ServedTask
from export.settings import ExportSettings


class _Contexts(NamedTuple):
    """The tokens of contexts."""

    ids: tf.RaggedTensor  # RaggedTensor int32 [B, (tokens)]
    # `starts`, `ends`: int64 [D], the range of each token's characters in its context; `ends` is exclusive
    starts: tf.Tensor
    ends: tf.Tensor
    characters: Characters


class ServedQuestions(ServedTask):
    """Inputs: `question` and `context`, of any length. Outputs: see `answer`."""

    flags = ("n_best_size", "max_answer_length", "null_score_diff_threshold")

    @staticmethod
    def completed(settings: ExportSettings, description: TaskDescription, folder: str, step: int) -> TaskDescription:
        """Adds the decoding parameters and, for SQuAD 2.0, the null threshold to the description. Values that are not
        in the settings come from the run."""
        threshold = settings.null_score_diff_threshold
        parameters = dict(description.parameters) | _decoding_flags(settings, description)
        if parameters["version_2_with_negative"]:
            if threshold is None:
                threshold = squad_results.NULL_THRESHOLD.read(folder, step)
                _refuse_other_decoding(parameters, description, folder)
            parameters["null_threshold"] = threshold
        elif threshold is not None:
            raise InputError(
                f"--null_score_diff_threshold={threshold}: {folder} was trained without --version_2_with_negative, so "
                "it answers every question; remove the flag"
            )
        return dataclasses.replace(description, parameters=parameters)

    def inputs(self) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec([None], tf.string) for name in ("question", "context")}

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers questions as `run_squad --exact_answer_offsets` does.
        `question`: string [B].
        `context`: string [B]; a long context is read in windows.
        Returns:
        `answer`: string [B], a part of the context; "" if there is no answer.
        `start`, `end`: int32 [B], the range of the answer's characters in the context; `end` is exclusive; -1 without
          an answer.
        `score`: float32 [B], the start logit plus the end logit of the answer. If there is no answer, the score is the
          null score (SQuAD 2.0) or 0.
        `probability`: float32 [B], the answer's probability from a softmax over the scores of the best answers.
        `null_odds`: float32 [B], the null score minus the score of the best answer. If the odds exceed the null
          threshold, the question has no answer. This output exists only for SQuAD 2.0."""
        data, parameters = self._description.data, self._description.parameters
        questions = self.tokenizer.encode(question)[:, : data["max_query_length"]]
        ids, starts, ends = self.tokenizer.encode_with_offsets(context)
        contexts = _Contexts(ids, starts.values, ends.values, Characters.of(context))
        lengths, separators = (ids.row_lengths(), questions.row_lengths()), self.tokenizer.rules.separators
        windows = cut(ids.row_starts(), *lengths, self.length, data["doc_stride"], separators)
        rows = self.rows(tf.gather(questions, windows.questions), tf.gather(contexts.ids.values, windows.tokens))
        logits = row_groups.compute(self._logits, rows)
        decoding = Decoding(
            parameters["n_best_size"], parameters["max_answer_length"], parameters["version_2_with_negative"]
        )
        return _decode(logits, contexts, windows, decoding, parameters.get("null_threshold", 0.0))

    def answer_tokens(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Scores the tokens of rows, int32 [B, S].
        Returns:
        `start_logits`: float32 [B, S]; very low on padding.
        `end_logits`: float32 [B, S]; very low on padding."""
        start, end = tf.unstack(self._logits(inputs), axis=-1)
        return {"start_logits": start, "end_logits": end}

    def _logits(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Computes the logits of rows, float32 [N, S, 2]; very low on padding."""
        return squad_task.of_tokens(self._model(inputs)["logits"], inputs["input_mask"])


def _decoding_flags(settings: ExportSettings, description: TaskDescription) -> dict[str, int]:
    """Returns `n_best_size` and `max_answer_length`. Values that are not in the settings come from the run, or are the
    defaults if the run does not state a value."""
    values = {}
    for name in ("n_best_size", "max_answer_length"):
        flag = getattr(settings, name)
        values[name] = description.evaluation.get(name, getattr(Decoding, name)) if flag is None else flag
    return values


def _refuse_other_decoding(parameters: Mapping[str, Any], description: TaskDescription, folder: str) -> None:
    """Refuses a threshold that was tuned with other values, which are the run's values."""
    if not (path := squad_results.NULL_THRESHOLD.path(folder)):
        return
    for name, tuned_with in description.evaluation.items():
        if parameters[name] != tuned_with:
            raise InputError(
                f"--{name}={parameters[name]}: the threshold in {path} was tuned with {tuned_with}; remove the flag, "
                "or give --null_score_diff_threshold"
            )


def _decode(
    logits: tf.Tensor, contexts: _Contexts, windows: Windows, decoding: Decoding, threshold: float
) -> dict[str, tf.Tensor]:
    """Finds the best answer to each question.
    `logits`: float32 [N, S, 2], logits of start and end; very low at positions without a token.
    `threshold`: the null threshold. A question with larger null odds has no answer."""
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
    # The softmax is over the scores of all candidates, including "no answer".
    top = tf.maximum(none, tf.where(is_found, score, none))
    others = tf.exp(tf.reduce_sum(spans.logits, 1) - tf.gather(top, spans.questions))
    total = tf.math.unsorted_segment_sum(others, spans.questions, rows) + tf.exp(none - top)
    score = tf.where(answered, score, none)
    answers = {
        "answer": tf.where(answered, _chosen(texts, first, is_found), ""),
        "score": tf.cast(score, tf.float32),
        "probability": tf.cast(tf.exp(score - top) / total, tf.float32),
        "start": tf.where(answered, tf.cast(_chosen(spans.starts, first, is_found), tf.int32), NOWHERE),
        "end": tf.where(answered, tf.cast(_chosen(spans.ends, first, is_found), tf.int32), NOWHERE),
    }
    return answers | ({"null_odds": tf.cast(odds, tf.float32)} if decoding.has_unanswerable else {})


def _spans(logits: tf.Tensor, contexts: _Contexts, windows: Windows, decoding: Decoding) -> Spans:
    """Finds the valid spans in logits, [N, S, 2]; the starts and ends are character offsets in the context."""
    spans = best_spans(logits, windows, tf.size(contexts.ids.values, tf.int64), decoding)
    first, last = (tf.gather(windows.tokens.values, at) for at in (spans.starts, spans.ends))
    return spans._replace(starts=tf.gather(contexts.starts, first), ends=tf.gather(contexts.ends, last))


def _null_scores(logits: tf.Tensor, windows: Windows, rows: tf.Tensor) -> tf.Tensor:
    """Returns the null score of each question, float64 [B]: the lowest score of [CLS] in the question's windows."""
    scores = tf.reduce_sum(tf.cast(logits[:, 0], tf.float64), 1)
    lowest = tf.math.unsorted_segment_min(scores, windows.questions, rows)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(windows.questions), windows.questions, rows)
    return tf.where(counts > 0, lowest, NULL_WITHOUT_WINDOW)


def _distinct(spans: Spans, characters: Characters, null: tf.Tensor, decoding: Decoding) -> tuple[Spans, tf.Tensor]:
    """Keeps the best spans of each question; of several spans with the same text, only the first one."""
    texts = characters.texts(spans.questions, spans.starts, spans.ends)
    number = tf.range(tf.size(texts))
    same = tf.unique(tf.strings.join([tf.strings.as_string(spans.questions), texts], " ")).idx
    is_first = tf.gather(tf.math.unsorted_segment_min(number, same, tf.size(texts)), same) == number
    before = tf.cumsum(tf.cast(is_first, tf.int32), exclusive=True)
    before -= tf.gather(before, tf.searchsorted(spans.questions, spans.questions))  # ranks begin at 0 for each question
    if decoding.has_unanswerable:  # "no answer" precedes spans with a lower score
        before += tf.cast(tf.reduce_sum(spans.logits, 1) < tf.gather(null, spans.questions), tf.int32)
    kept = tf.where(is_first & (before < decoding.n_best_size))[:, 0]
    return Spans(*(tf.gather(column, kept) for column in spans)), tf.gather(texts, kept)


def _chosen(values: tf.Tensor, first: tf.Tensor, is_found: tf.Tensor) -> tf.Tensor:
    """Returns one entry of `values`, [K, ...], for each question."""
    values = tf.concat([values, tf.zeros([1, *values.shape[1:]], values.dtype)], 0)
    return tf.gather(values, tf.where(is_found, first, tf.shape(values)[0] - 1))


KINDS: dict[str, type[ServedTask]] = {squad_task.QUESTIONS: ServedQuestions}
