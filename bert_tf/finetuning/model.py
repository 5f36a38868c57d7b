"""The encoder with a task's head, and its training objective.

Paper: section 3.2, Figure 4.

Letters: B batch, S sequence length, H hidden size.
"""

from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.finetuning.task import Task


class FineTunedBert(keras.Model):
    """The encoder with a head.

    Paper: section 3.2, Figure 4.

    Args:
      config: shape and regularization.
      make_head: returns the head, a layer that computes logits from one of the encoder's outputs. Its attribute `reads`
        names that output.
      recompute_activations: see `BertEncoder`.
    """

    def __init__(
        self,
        config: BertConfig,
        make_head: Callable[[BertConfig], keras.layers.Layer],
        recompute_activations: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = config
        self.encoder = BertEncoder(config, recompute_activations)
        self.head = make_head(config)

    def call(self, inputs, training=False, seed=None):
        """Adds the head's `logits` to the encoder's outputs; see `BertEncoder`."""
        outputs = self.encoder(inputs, training=training, seed=seed)
        return {**outputs, "logits": self.head(outputs[self.head.reads], training=training, seed=seed)}


class FineTuningObjective:
    """The loss and the metrics of a task; see `trainer.Objective`.

    Args:
      model: maps a batch to `logits`.
      task: computes the losses from them.

    Attributes:
      evaluation_step: the traced step of `evaluation.evaluate_rows`, kept from the first evaluation to the next; None.
    """

    def __init__(self, model: keras.Model, task: Task):
        self.model, self._task = model, task
        self.evaluation_step: Callable | None = None
        self.metrics = task.metrics

    def denominators(self, batch: Mapping[str, tf.Tensor]) -> dict[str, dict[str, tf.Tensor]]:
        """Sums the weights of a batch, float32 [], for the loss and for each metric."""
        total = tf.reduce_sum(self._task.weights(batch))
        names = [metric.name for metric in self.metrics if not metric.derived_from]
        return {"loss": {"loss": total}, "metrics": {name: total for name in names if name != "loss"}}

    def numerators(self, batch: Mapping[str, tf.Tensor], training: bool, seed) -> dict[str, dict[str, tf.Tensor]]:
        """Sums the weighted loss and metrics of a batch, float32 []."""
        logits = self.model(batch, training=training, seed=seed)["logits"]
        sums = self.weighted_sums(logits, batch)
        return {"loss": {"loss": sums.pop("loss")}, "metrics": sums}

    def weighted_sums(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Sums loss and metrics by the weights of their values, float32 [] each."""
        weights = self._task.weights(batch)
        values = self._task.losses(logits, batch)
        return {name: tf.reduce_sum(value * weights) for name, value in values.items()}
