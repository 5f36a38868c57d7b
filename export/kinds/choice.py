"""Served multiple choice: chooses one of several texts.

Paper: section 4.4.

Letters: N choices per example, R choices of all examples.
"""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.tasks.choice import choice_task
from export.kinds import row_groups
from export.kinds.base import ServedTask


class ServedChoice(ServedTask):
    """Inputs: `context`, `start` and `choices`, as in the training data. Outputs: see `answer`."""

    def inputs(self) -> dict[str, tf.TensorSpec]:
        one = tf.TensorSpec([None], tf.string)
        return {"context": one, "start": one, "choices": tf.TensorSpec([None, None], tf.string)}

    def answer(self, context: tf.Tensor, start: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        """Chooses the most probable continuation of each context.
        `context`: string [B].
        `start`: string [B], the text that precedes each choice in the second segment; may be "".
        `choices`: string [B, N]; examples with fewer choices are padded with "".
        Returns:
        `probabilities`: float32 [B, N], the probability of each choice; 0 on padding.
        `choice`: int32 [B], the index of the most probable choice; -1 if the example has no choices."""
        is_there = tf.strings.length(choices) > 0  # [B, N]
        example = tf.where(is_there)[:, 0]  # [R]
        before = tf.gather(start, example)
        before = tf.where(tf.strings.length(before) > 0, tf.strings.join([before, " "]), "")
        rows = self.rows(
            tf.gather(self.tokenizer.encode(context), example),
            self.tokenizer.encode(tf.strings.join([before, tf.boolean_mask(choices, is_there)])),
        )
        scores = row_groups.compute(lambda part: self._model(part)["logits"][:, 0], rows)  # [R]
        return _chosen(tf.scatter_nd(tf.where(is_there), scores, tf.shape(choices, tf.int64)), is_there)

    def answer_tokens(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Chooses one of N rows for each example. The inputs are int32 [B, N, S]; a row without tokens is padding."""
        shape = tf.shape(inputs["input_ids"])
        rows = {name: tf.reshape(values, [shape[0] * shape[1], shape[2]]) for name, values in inputs.items()}
        scores = tf.reshape(self._model(rows)["logits"], shape[:2])
        return _chosen(scores, tf.reduce_any(inputs["input_mask"] > 0, -1))

    def token_spec(self) -> tf.TensorSpec:
        return tf.TensorSpec([None, None, None], tf.int32)


def _chosen(scores: tf.Tensor, is_there: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the outputs of `answer` for `scores`, float32 [B, N]. `is_there`, bool [B, N], is false on padding."""
    scores = tf.where(is_there, scores, scores.dtype.min)
    best = tf.reduce_max(scores, -1, keepdims=True)
    chances = tf.where(is_there, tf.exp(scores - best), 0.0)
    has_any = tf.reduce_any(is_there, -1)
    # `tf.argmax` needs at least one column, even if there are no choices.
    chosen = tf.argmax(tf.pad(scores, [[0, 0], [0, 1]], constant_values=scores.dtype.min), -1, tf.int32)
    return {
        "probabilities": tf.math.divide_no_nan(chances, tf.reduce_sum(chances, -1, keepdims=True)),
        "choice": tf.where(has_any, chosen, -1),
    }


KINDS: dict[str, type[ServedTask]] = {choice_task.CHOICE: ServedChoice}
