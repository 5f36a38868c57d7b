"""The encoder with a task's head, and its training objective.

Paper: section 3.2, Figure 4. The auxiliary loss of the language model is from A. Radford et al., "Improving Language
Understanding by Generative Pre-Training", 2018, section 3.2.

Letters: L layers that the head reads.
"""

import functools
from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.encoder_pair import make_encoder
from bert_tf.finetuning.batches import row_columns
from bert_tf.finetuning.task import Task
from bert_tf.input.pipeline import every_token_predicted
from bert_tf.modeling.bilstm import BiLstmHead
from bert_tf.modeling.heads import MaskedLanguageModelHead
from bert_tf.training.metrics import Metric

_LM_LOSS = Metric("lm_loss", "lm loss", "language_model", title="loss of the language model, nats")
_TEACHER_LOSS = Metric("teacher_loss", "teacher loss", "teacher", title="loss of the teacher's outputs")


class FineTunedBert(keras.Model):
    """The encoder with a head.
    Paper: section 3.2, Figure 4.
    `make_head`: function that returns the head, a layer that computes logits from one of the encoder's outputs; see
      `Task.head`.
    `has_language_model`: whether the model also has the masked-LM head, for the auxiliary loss of
      `FineTuningObjective`."""

    def __init__(
        self,
        config: BertConfig,
        make_head: Callable[[BertConfig], keras.layers.Layer],
        recompute_activations: bool = False,
        has_language_model: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = config
        self.encoder = make_encoder(config, recompute_activations)
        self.masked_lm = MaskedLanguageModelHead(config) if has_language_model else None
        head = make_head(config)
        self.head_name = getattr(head, "checkpoint_name", "head")
        setattr(self, self.head_name, head)

    @property
    def task_head(self) -> keras.layers.Layer:
        """The head; the value of `head_name` is the name of the head's attribute."""
        return getattr(self, self.head_name)

    @property
    def num_weights(self) -> int:
        return sum(variable.shape.num_elements() for variable in self.variables)

    def call(self, inputs, training=False, seed=None):
        """Computes the head's logits for each row.
        `inputs`: see `BertEncoder`. For packed rows, the inputs are a batch of `batches.row_batches`. If the inputs
          contain `activations`, the encoder does not run.
        `seed`: int32 [2], seed of the dropout masks.
        Returns dict with `logits`; the first axis of the logits has one entry per row. Unless the head reads
        activations, the dict also has the encoder's outputs. For packed inputs, the encoder's outputs are packed too.
        """
        head = self.task_head
        if head.reads == "activations":  # of several layers, instead of an output; see `Task.head`
            read = inputs["activations"] if "activations" in inputs else self.activations(inputs)
            mask = row_columns(inputs)["read_mask"]
            return {"logits": head(read, read_mask=mask, training=training, seed=seed)}
        # The encoder computes its last layer only at positions that the heads read.
        nowhere = tf.zeros([tf.shape(inputs["input_ids"])[0], 0], tf.int32)
        reads_all = head.reads != "pooled_output" or (training and self.masked_lm is not None)
        positions = None if reads_all else nowhere
        outputs = self.encoder(inputs, training=training, seed=seed, positions=positions)
        read = outputs[head.reads]
        if getattr(head, "is_per_token", False):
            logits = head(read, training=training, seed=seed)
            # Gathering logits moves fewer values than gathering the head's inputs.
            return {**outputs, "logits": _of_rows(logits, inputs, head.reads) if "slots" in inputs else logits}
        if "slots" in inputs:
            read = _of_rows(read, inputs, head.reads)
        columns = {name: row_columns(inputs)[name] for name in getattr(head, "columns", ())}
        return {**outputs, "logits": head(read, **columns, training=training, seed=seed)}

    def activations(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Computes the activations that the head reads, without dropout.
        `inputs`: the inputs of `call`, and also the column `read_positions`, int32 [B, S]. This column contains the
          positions in each row that the head reads.
        Returns the activations of the layers in the head's attribute `layers`, float [B, S, L, H]. Layer 0 is the
        output of the embeddings."""
        outputs, numbers = self.encoder(inputs, training=False), self.task_head.layers
        layers = [outputs["embedding_output"], *outputs["encoder_outputs"]]
        joined = tf.concat([layers[number] for number in numbers], axis=-1)  # [B, S, L H]
        if "slots" in inputs:
            joined = _of_rows(joined, inputs, "sequence_output")
        joined = tf.gather(joined, row_columns(inputs)["read_positions"], batch_dims=1)
        # Not -1 for the number of rows: a batch may have neither rows nor positions.
        rows, length = (static or tf.shape(joined)[axis] for axis, static in enumerate(joined.shape[:2]))
        return tf.reshape(joined, [rows, length, len(numbers), self.config.hidden_size])


def head_maker(
    make_head: Callable[[BertConfig], keras.layers.Layer], bilstm_head: bool | None
) -> Callable[[BertConfig], keras.layers.Layer]:
    """Returns a function that makes a model's head: the head of `make_head`, on top of a BiLSTM if `bilstm_head`."""
    return functools.partial(BiLstmHead, make_head=make_head) if bilstm_head else make_head


def _of_rows(output: tf.Tensor, batch: Mapping[str, tf.Tensor], name: str) -> tf.Tensor:
    """Gathers the values of each row from an output for packed rows."""
    flat = tf.reshape(output, [-1, output.shape[-1]])
    if name == "pooled_output":
        return tf.gather(flat, batch["slots"])
    length = row_columns(batch)["input_mask"].shape[1]
    last = tf.shape(flat)[0] - 1
    return tf.gather(flat, tf.minimum(batch["starts"][:, tf.newaxis] + tf.range(length), last))


class FineTuningObjective:
    """The loss and the metrics of a task; see `gradients.Objective`. In training, the loss is L2 + c L1. L2 is the mean
    loss of the task, L1 is the mean loss of the language model over all tokens of the same rows except special tokens,
    and c is `lm_coefficient`. With a teacher, (1 - w) L2 + w L3 replaces L2. L3 is the mean loss of the teacher's
    outputs, also for rows without labels. Evaluations measure only L2.
    `model`: model that maps a batch to `logits`.
    `lm_coefficient`: c; if it is above 0, the model must have a language model.
    `distill_weight`: w; 0 without a teacher.
    `temperature`: see `divergence`.
    `evaluation_step`: the step function of `evaluation.evaluate_rows`; None before the first evaluation."""

    def __init__(
        self,
        model: keras.Model,
        task: Task,
        lm_coefficient: float = 0.0,
        distill_weight: float = 0.0,
        temperature: float = 1.0,
    ):
        self.model, self._task, self._lm_coefficient = model, task, lm_coefficient
        self._distill_weight, self._temperature = distill_weight, temperature
        self.evaluation_step: Callable | None = None
        more = {_LM_LOSS: lm_coefficient, _TEACHER_LOSS: distill_weight}
        self.metrics = (*task.metrics, *(metric for metric, factor in more.items() if factor))
        self.couples_rows = task.couples_rows

    def loss(self, numerators: Mapping[str, tf.Tensor], denominators: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weighted loss divided by the sum of the weights, float32 []; see the class."""

        def mean(name: str) -> tf.Tensor:
            return tf.math.divide_no_nan(numerators[name], denominators[name])

        loss, weight = mean("loss"), self._distill_weight
        if weight:
            loss = (1 - weight) * loss + weight * mean(_TEACHER_LOSS.name)
        return loss + self._lm_coefficient * mean(_LM_LOSS.name) if self._lm_coefficient else loss

    def denominators(self, batch: Mapping[str, tf.Tensor]) -> dict[str, dict[str, tf.Tensor]]:
        """Returns the denominators of the loss and of each metric: the sum of the batch's weights, float32 []."""
        rows = row_columns(batch)
        total = tf.reduce_sum(self._task.weights(_labeled(rows)))
        names = [metric.name for metric in self._task.metrics if metric.is_trained]
        terms = {"loss": total}
        if self._lm_coefficient:
            terms[_LM_LOSS.name] = tf.reduce_sum(self._predicted(batch)["masked_lm_weights"])
        if self._distills(rows):
            terms[_TEACHER_LOSS.name] = tf.reduce_sum(self._task.distillation.weights(rows))
        return {"loss": terms, "metrics": {name: total for name in names if name != "loss"}}

    def numerators(self, batch: Mapping[str, tf.Tensor], training: bool, seed) -> dict[str, dict[str, tf.Tensor]]:
        """Returns the numerators of the loss and of each metric: weighted sums over the batch, float32 [] each."""
        outputs = self.model(batch, training=training, seed=seed)
        sums = self._terms(self.weighted_sums(outputs["logits"], batch))
        if self._lm_coefficient:
            sums["loss"][_LM_LOSS.name] = self._language_model_loss(outputs["sequence_output"], batch)
        return sums

    def _terms(self, sums: dict[str, tf.Tensor]) -> dict[str, dict[str, tf.Tensor]]:
        terms = {name: sums.pop(name) for name in ("loss", _TEACHER_LOSS.name) if name in sums}
        return {"loss": terms, "metrics": sums}

    def _distills(self, rows: Mapping[str, tf.Tensor]) -> bool:
        return bool(self._distill_weight) and "teacher_outputs" in rows

    def outputs(self, batch: Mapping[str, tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
        return self.model(batch, training=True, seed=seed)["logits"]

    def columns(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: v for name, v in row_columns(batch).items() if v.shape.rank == 1 or name == "teacher_outputs"}

    def numerators_of(
        self, outputs: tf.Tensor, columns: Mapping[str, tf.Tensor], is_own: tf.Tensor
    ) -> dict[str, dict[str, tf.Tensor]]:
        return self._terms(self.weighted_sums(outputs, columns, is_own))

    def _predicted(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the tokens that the language model predicts; see `every_token_predicted`. In a packed row, no token
        is predicted from another example, because the first token in the model's direction is a special token."""
        predicted = every_token_predicted(batch, self.model.config.directionality)
        if "row_weights" in batch:  # padding rows of an unpacked batch
            predicted["masked_lm_weights"] *= batch["row_weights"][:, tf.newaxis]
        return predicted

    def _language_model_loss(self, states: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Sums the language model's losses over the predicted tokens, float32 []; `states` is float [B, S, H]."""
        predicted, head = self._predicted(batch), self.model.masked_lm
        scores = head(states, predicted["masked_lm_positions"], self.model.encoder.embeddings.word_embeddings)
        losses, _ = head.losses(scores, tf.reshape(predicted["masked_lm_ids"], [-1]))
        return tf.reduce_sum(losses * tf.reshape(predicted["masked_lm_weights"], [-1]))

    def weighted_sums(
        self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor], factors: tf.Tensor | float = 1.0
    ) -> dict[str, tf.Tensor]:
        """Computes the weighted sums of the loss and of the metrics, float32 [] each.
        `factors`: factors of the weights, with the shape of the weights."""
        batch = row_columns(batch)
        labeled = _labeled(batch)
        weights = self._task.weights(labeled) * factors
        values = self._task.losses(logits, labeled)
        sums = {name: tf.reduce_sum(value * weights) for name, value in values.items()}
        if self._distills(batch):
            distillation, teacher = self._task.distillation, batch["teacher_outputs"]  # float32 [B, P, ...]
            padding = [[0, 0], [0, logits.shape[1] - teacher.shape[1]], [0, 0]]
            teacher = teacher[:, 0] if logits.shape.rank == 2 else tf.pad(teacher, padding)
            losses = distillation.losses(teacher, logits, self._temperature, batch)
            sums[_TEACHER_LOSS.name] = tf.reduce_sum(losses * distillation.weights(batch) * factors)
        return sums


def _labeled(rows: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
    """Returns the columns of a batch with weight 0 for the rows that have no label."""
    return {**rows, "row_weights": rows["row_weights"] * rows["is_labeled"]} if "is_labeled" in rows else rows
