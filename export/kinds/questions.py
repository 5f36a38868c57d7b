"""Served question answering: finds the answer to a question in a context.

Paper: section 3.2, Figure 4 (c); sections 4.2 and 4.3.

Letters: N windows of all contexts.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.questions import squad_results, squad_task
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.text.characters import Characters
from export.kinds import row_groups, spans
from export.kinds.base import ServedTask
from export.settings import ExportSettings


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
        `start`, `end`: int32 [B], the range of the answer's characters in the context; `end` is exclusive; -1 if there
          is no answer.
        `score`: float32 [B], the start logit plus the end logit of the answer. If there is no answer, the score is the
          null score (SQuAD 2.0) or 0.
        `probability`: float32 [B], the answer's probability from a softmax over the scores of the best answers.
        `null_odds`: float32 [B], the null score minus the score of the best answer. If the odds exceed the null
          threshold, the question has no answer. This output exists only for SQuAD 2.0."""
        data, parameters = self._description.data, self._description.parameters
        questions = self.tokenizer.encode(question)[:, : data["max_query_length"]]
        contexts = self._contexts(context)
        windows = spans.cut(contexts.ids, questions.row_lengths(), self.length, data["doc_stride"])
        rows = self.rows(tf.gather(questions, windows.questions), tf.gather(contexts.ids.values, windows.tokens))
        logits = row_groups.compute(self._logits, rows)
        decoding = Decoding(
            parameters["n_best_size"], parameters["max_answer_length"], parameters["version_2_with_negative"]
        )
        return spans.decode(logits, contexts, windows, decoding, parameters.get("null_threshold", 0.0))

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

    def _contexts(self, texts: tf.Tensor) -> spans.Contexts:
        ids, starts, ends = self.tokenizer.encode_with_offsets(texts)
        return spans.Contexts(ids, starts.values, ends.values, Characters.of(texts))


def _decoding_flags(settings: ExportSettings, description: TaskDescription) -> dict[str, int]:
    """Returns `n_best_size` and `max_answer_length`. Values that are not in the settings come from the run, or are the
    defaults if the run does not state a value."""
    found = {}
    for name in ("n_best_size", "max_answer_length"):
        given = getattr(settings, name)
        found[name] = description.evaluation.get(name, getattr(Decoding, name)) if given is None else given
    return found


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


KINDS: dict[str, type[ServedTask]] = {squad_task.QUESTIONS: ServedQuestions}
