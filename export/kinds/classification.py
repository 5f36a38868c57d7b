"""Served classification, regression and multi-label classification of a text or a pair of texts.

Letters: P maximum number of predicted labels in a row.
"""

import abc
import functools
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.classification import multi_label
from bert_tf.tasks.classification.example import CLASSIFICATION, MULTI_LABEL, REGRESSION
from bert_tf.tasks.classification.reading import LongTextRule
from bert_tf.tasks.classification.regression import Regression
from export.kinds import row_groups
from export.kinds.base import CLASSIFY, REGRESS, ServedTask
from export.settings import ExportSettings


class _ServedClassification(ServedTask):
    """Inputs: `text_a` and, for pairs, `text_b`."""

    method = CLASSIFY

    def inputs(self) -> dict[str, tf.TensorSpec]:
        names = ("text_a", "text_b") if self._description.parameters["has_pairs"] else ("text_a",)
        return {name: tf.TensorSpec([None], tf.string) for name in names}

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the answers to texts; see `answers_of` for the outputs."""
        columns = {name.replace("text", "segment"): text for name, text in texts.items()}
        model = functools.partial(row_groups.compute, self._logits)
        return self.answers_of(self._reading.logits(columns, self.tokenizer, self.length, model))

    def answer_tokens(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the answer to each row, int32 [B, S]; see `answers_of`. Windows of one text are separate rows. If
        the model reads pairs in both orders, the inputs are int32 [B, 2, S], with both orders of each pair."""
        if not self._reading.has_both_orders:
            return self.answers_of(self._logits(inputs))
        shape = tf.shape(inputs["input_ids"])
        rows = {name: tf.reshape(values, [2 * shape[0], shape[2]]) for name, values in inputs.items()}
        return self.answers_of(self._logits(rows | {"order_ids": tf.tile([0, 1], shape[:1])})[::2])

    def token_spec(self) -> tf.TensorSpec:
        return tf.TensorSpec([None, 2, None], tf.int32) if self._reading.has_both_orders else super().token_spec()

    @property
    def _reading(self) -> LongTextRule:
        return LongTextRule.of_parameters(self._description.parameters)

    def _logits(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return self._model(inputs)["logits"]

    @abc.abstractmethod
    def answers_of(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the answers for logits, float32 [B, C]."""

    def example_outputs(self, answers: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the outputs of TF Serving's method classify. Each row has all classes, in the order of the labels."""
        labels, scores = tf.constant(self._description.labels, tf.string), answers["probabilities"]
        return {"classes": tf.broadcast_to(labels, tf.shape(scores)), "scores": scores}


class ServedClassifier(_ServedClassification):
    """Predicts one class per row; see `answers_of`."""

    def answers_of(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the probabilities of all classes, and the most probable class.
        Returns:
        `probabilities`: float32 [B, C].
        `label`: string [B], the name of the most probable class."""
        labels = tf.constant(self._description.labels, tf.string)
        return {"probabilities": tf.nn.softmax(logits), "label": tf.gather(labels, tf.argmax(logits, axis=-1))}


class ServedRegression(_ServedClassification):
    """Predicts one score per row; see `answers_of`."""

    method = REGRESS

    def answers_of(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Converts logits to scores; returns `score`: float32 [B], on the scale of the training data's scores."""
        return {"score": Regression.of_parameters(self._description.parameters).outputs(logits)[:, 0]}

    def example_outputs(self, answers: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"outputs": answers["score"]}


class ServedMultiLabel(_ServedClassification):
    """Predicts any number of labels per row; see `answers_of`. `assets/labels.txt` lists the C labels in order."""

    @staticmethod
    def completed(settings: ExportSettings, description: TaskDescription, folder: str, step: int) -> TaskDescription:
        """Adds the run's thresholds to the description."""
        del settings
        return multi_label.with_thresholds(description, folder, step)

    def answers_of(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decides which labels each row has.
        Returns:
        `probabilities`: float32 [B, C].
        `predicted`: bool [B, C], whether the probability exceeds the label's threshold.
        `labels`: string [B, P], the names of the predicted labels, padded with "" at the end."""
        probabilities = tf.sigmoid(logits)
        predicted = probabilities > tf.constant(self._description.parameters["thresholds"], tf.float32)
        names = tf.broadcast_to(tf.constant(self._description.labels, tf.string), tf.shape(predicted))
        labels = tf.ragged.boolean_mask(names, predicted).to_tensor("")
        return {"probabilities": probabilities, "predicted": predicted, "labels": labels}


KINDS: dict[str, type[ServedTask]] = {
    CLASSIFICATION: ServedClassifier,
    REGRESSION: ServedRegression,
    MULTI_LABEL: ServedMultiLabel,
}
