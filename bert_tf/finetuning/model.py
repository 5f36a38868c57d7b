"""The encoder with a task's head, and its training objective.

Paper: section 3.2, Figure 4.

Letters: B batch, S sequence length, H hidden size; R packed rows, W their length, K maximum number of rows in one.
"""

import functools
from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.finetuning.batches import row_columns
from bert_tf.finetuning.task import Task
from bert_tf.modeling.bilstm import BiLstmHead

# What a head reads that takes activations of several layers instead of an output of the encoder; see `Task.head`.
ACTIVATIONS = "activations"


class FineTunedBert(keras.Model):
    """The encoder with a head.

    Paper: section 3.2, Figure 4.

    Args:
      config: shape and regularization.
      make_head: returns the head, a layer that computes logits from one of the encoder's outputs. Its attribute `reads`
        names that output; see `Task.head` for the others.
      recompute_activations: see `BertEncoder`.

    Attributes:
      head_name: the head's name in checkpoints.
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
        head = make_head(config)
        self.head_name = getattr(head, "checkpoint_name", "head")
        setattr(self, self.head_name, head)

    @property
    def task_head(self) -> keras.layers.Layer:
        """The head; it is an attribute of the name that checkpoints give it."""
        return getattr(self, self.head_name)

    def call(self, inputs, training=False, seed=None):
        """Computes the head's `logits` of each row.

        Args:
          inputs: see `BertEncoder`; of packed rows, a batch of `batches.row_batches`. With `activations` the encoder
            does not run.
          training: whether to apply dropout.
          seed: int32 [2] for the dropout masks.

        Returns:
          dict of `logits`, with one entry of the first axis for each row, and of the encoder's outputs as they are.
        """
        head = self.task_head
        if head.reads == ACTIVATIONS:
            read = inputs["activations"] if "activations" in inputs else self.activations(inputs)
            mask = row_columns(inputs)["read_mask"]
            return {"logits": head(read, read_mask=mask, training=training, seed=seed)}
        # The last layer is computed only where the head reads it.
        nowhere = tf.zeros([tf.shape(inputs["input_ids"])[0], 0], tf.int32)
        positions = nowhere if head.reads == "pooled_output" else None
        outputs = self.encoder(inputs, training=training, seed=seed, positions=positions)
        read = outputs[head.reads]
        if getattr(head, "is_per_token", False):
            logits = head(read, training=training, seed=seed)
            # Gathering logits moves fewer values than gathering what the head reads.
            return {**outputs, "logits": _of_rows(logits, inputs, head.reads) if "slots" in inputs else logits}
        if "slots" in inputs:
            read = _of_rows(read, inputs, head.reads)
        mask = {"input_mask": row_columns(inputs)["input_mask"]} if getattr(head, "reads_mask", False) else {}
        return {**outputs, "logits": head(read, **mask, training=training, seed=seed)}

    def activations(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Computes what the layers of the head give for the tokens that it reads, without dropout.

        Args:
          inputs: as for `call`, with `read_positions`, int32 [B, S]: the tokens of each row that the head reads.

        Returns:
          float [B, S, K, H], of the K layers that the head's attribute `layers` names; 0 is the embeddings.
        """
        outputs, numbers = self.encoder(inputs, training=False), self.task_head.layers
        layers = [outputs["embedding_output"], *outputs["encoder_outputs"]]
        found = tf.concat([layers[number] for number in numbers], axis=-1)  # [B, S, K H]
        if "slots" in inputs:
            found = _of_rows(found, inputs, "sequence_output")
        found = tf.gather(found, row_columns(inputs)["read_positions"], batch_dims=1)
        length = tf.shape(found)[1] if found.shape[1] is None else found.shape[1]
        return tf.reshape(found, [-1, length, len(numbers), self.config.hidden_size])


def head_maker(
    make_head: Callable[[BertConfig], keras.layers.Layer], bilstm_head: bool | None
) -> Callable[[BertConfig], keras.layers.Layer]:
    """Returns what makes the head of a model: a task's `Task.head`, with `bilstm_head` on a BiLSTM."""
    return functools.partial(BiLstmHead, make_head=make_head) if bilstm_head else make_head


def _of_rows(output: tf.Tensor, batch: Mapping[str, tf.Tensor], name: str) -> tf.Tensor:
    """Takes what belongs to each row out of an output of packed rows.

    Args:
      output: float [R, K, H], pooled, or [R, W, H]; H may also be the number of logits.
      batch: see `batches.row_batches`.
      name: of the output.

    Returns:
      float [B, H] or [B, S, H]; what is padding in a row has any value.
    """
    flat = tf.reshape(output, [-1, output.shape[-1]])
    if name == "pooled_output":
        return tf.gather(flat, batch["slots"])
    length = row_columns(batch)["input_mask"].shape[1]
    last = tf.shape(flat)[0] - 1
    return tf.gather(flat, tf.minimum(batch["starts"][:, tf.newaxis] + tf.range(length), last))


class FineTuningObjective:
    """The loss and the metrics of a task; see `gradients.Objective`.

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

    def loss(self, numerators: Mapping[str, tf.Tensor], denominators: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Divides the weighted loss by the weights, float32 []."""
        return tf.math.divide_no_nan(numerators["loss"], denominators["loss"])

    def denominators(self, batch: Mapping[str, tf.Tensor]) -> dict[str, dict[str, tf.Tensor]]:
        """Sums the weights of a batch, float32 [], for the loss and for each metric."""
        total = tf.reduce_sum(self._task.weights(row_columns(batch)))
        names = [metric.name for metric in self.metrics if not metric.derived_from]
        return {"loss": {"loss": total}, "metrics": {name: total for name in names if name != "loss"}}

    def numerators(self, batch: Mapping[str, tf.Tensor], training: bool, seed) -> dict[str, dict[str, tf.Tensor]]:
        """Sums the weighted loss and metrics of a batch, float32 []."""
        logits = self.model(batch, training=training, seed=seed)["logits"]
        sums = self.weighted_sums(logits, batch)
        return {"loss": {"loss": sums.pop("loss")}, "metrics": sums}

    def weighted_sums(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Sums loss and metrics by the weights of their values, float32 [] each."""
        batch = row_columns(batch)
        weights = self._task.weights(batch)
        values = self._task.losses(logits, batch)
        return {name: tf.reduce_sum(value * weights) for name, value in values.items()}
