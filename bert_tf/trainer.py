"""The model at work: one step of training or evaluation on any strategy, and the figures of a loop of them.

Paper: appendix A.2 (pre-training procedure), A.3 (fine-tuning procedure).
"""

from collections.abc import Mapping
from typing import Protocol

import orbit
import tensorflow as tf
import tf_keras as keras

from bert_tf import optimization
from bert_tf.settings import DeviceSettings
from bert_tf.throughput import Throughput

_LARGEST_EXPONENT = 88.0  # of float32


class Objective(Protocol):
    """What a model is trained for.

    Attributes:
      model: what is trained.
      names: of all loss terms and metrics that `losses` gives.
    """

    model: keras.Model
    names: tuple[str, ...]

    def denominators(self, batch: Mapping) -> dict[str, tf.Tensor]:
        """What each loss term of a batch is divided by, float32 []; known before the model has run."""

    def losses(self, batch: Mapping, training: bool, seed: tf.Tensor | None) -> dict[str, dict]:
        """Ratios of a batch of one replica.

        Returns:
          "loss": name to (numerator, denominator), whose means over all replicas add up to the loss;
          "metrics": the same for what is only measured.
        """


def make_optimizer(
    settings: DeviceSettings, learning_rate: float, total_steps: int, warmup_steps: int
) -> keras.optimizers.Optimizer:
    """AdamW or LAMB with warm-up and decay; with dynamic loss scaling under float16."""
    schedule = optimization.WarmupLinearDecay(learning_rate, total_steps, warmup_steps)
    if settings.optimizer == "lamb":
        optimizer = optimization.Lamb(schedule)
    else:
        optimizer = optimization.AdamWeightDecay(schedule, bias_correction=settings.adam_bias_correction)
    if settings.dtype == "float16":
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


class Trainer(orbit.StandardTrainer, orbit.StandardEvaluator):
    """One model with its data, trained and evaluated by orbit's controller.

    Args:
      objective: model and loss.
      strategy: where to compute; the trainer is made in its scope.
      random_seed: seed of the dropout masks, which depend on it, the step and the replica alone.
      optimizer: None for evaluation only.
      train_dataset: distributed dataset of batches, which hold an `input_mask`.
      eval_dataset: the same, finite.
      throughput: counts what training works through; None for one that knows no FLOPs.
      gradient_accumulation_steps: micro-batches that a replica's share of a step is worked through in; they
        divide it equally. The step is the same, the activations of one micro-batch are in memory at a time.
    """

    def __init__(
        self,
        objective: Objective,
        strategy: tf.distribute.Strategy,
        *,
        random_seed: int = 0,
        optimizer: keras.optimizers.Optimizer | None = None,
        train_dataset=None,
        eval_dataset=None,
        throughput: Throughput | None = None,
        gradient_accumulation_steps: int = 1,
    ):
        self.objective, self.strategy, self.optimizer = objective, strategy, optimizer
        self.global_step = orbit.utils.create_global_step()
        self._seed, self._micro_batches = random_seed, gradient_accumulation_steps
        names = (*objective.names, *(["gradient_norm"] if optimizer else []))
        self._means = {name: keras.metrics.Mean(name, dtype=tf.float32) for name in names}
        self.throughput = throughput or Throughput()
        if optimizer is not None:
            optimizer.build(objective.model.trainable_variables)
        orbit.StandardTrainer.__init__(self, train_dataset)
        orbit.StandardEvaluator.__init__(self, eval_dataset)
        entries = {"model": objective.model, "global_step": self.global_step}
        if optimizer is not None:
            entries["optimizer"] = optimizer
        self.checkpoint = tf.train.Checkpoint(**entries)

    def create_train_loop_fn(self):
        """The loop of orbit, its first step apart: that one traces and compiles, and counts in no rate."""
        loop = super().create_train_loop_fn()
        compiled = False

        def run(iterator, num_steps):
            nonlocal compiled
            if not compiled:
                loop(iterator, tf.constant(1))
                self.throughput.start()
            loop(iterator, num_steps if compiled else num_steps - 1)
            compiled = True

        return run

    def train_step(self, iterator):
        """One step over all replicas."""
        self.strategy.run(self._replica_train_step, args=(next(iterator),))
        self.global_step.assign_add(1)

    def eval_step(self, iterator):
        """One step of evaluation over all replicas."""

        def step(batch):
            terms = self.objective.losses(batch, training=False, seed=None)
            self._measure(terms["loss"] | terms["metrics"])

        self.strategy.run(step, args=(next(iterator),))

    def _replica_train_step(self, batch):
        self.throughput.count(batch)
        context = tf.distribute.get_replica_context()
        seed = tf.stack([tf.constant(self._seed, tf.int32), tf.cast(self.global_step, tf.int32)])
        seed = tf.random.experimental.stateless_fold_in(seed, context.replica_id_in_sync_group)
        # of the whole batch, so that a prediction weighs the same in whichever replica and micro-batch it is
        denominators = _sums_over_replicas(self.objective.denominators(batch))
        gradients, ratios = self._accumulated(batch, denominators, seed)
        scaling = isinstance(self.optimizer, keras.mixed_precision.LossScaleOptimizer)
        # a weight that the loss does not reach (a pooler without its task) has no gradient
        variables = self.objective.model.trainable_variables
        used = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        gradients, variables = zip(*used, strict=True)
        norm = optimization.clipped_update(self.optimizer, gradients, variables)
        # float16 overflows now and then; such a step is passed over and the loss scale lowered
        finite = tf.cast(tf.math.is_finite(norm) | (not scaling), tf.float32)
        norm = tf.where(finite > 0, norm, 0.0)
        self._measure(ratios | {"gradient_norm": (norm, finite)})

    def _accumulated(self, batch, denominators, seed):
        """Gradients and ratios of a replica's share of a step, summed over its micro-batches.

        Returns:
          One gradient a weight, None for those that the loss does not reach; and the ratios by their names.
        """
        if self._micro_batches == 1:
            return self._gradients(batch, denominators, seed)
        micro = {
            name: tf.reshape(value, [self._micro_batches, value.shape[0] // self._micro_batches, *value.shape[1:]])
            for name, value in batch.items()
        }
        variables = self.objective.model.trainable_variables
        reached = []

        def add(index, gradients, ratios):
            rows = {name: value[index] for name, value in micro.items()}
            drawn = tf.random.experimental.stateless_fold_in(seed, index)
            new, new_ratios = self._gradients(rows, denominators, drawn)
            reached[:] = [gradient is not None for gradient in new]
            new = [
                total if g is None else total + tf.convert_to_tensor(g) for total, g in zip(gradients, new, strict=True)
            ]
            return index + 1, new, tf.nest.map_structure(tf.add, ratios, new_ratios)

        zeros = {name: (tf.zeros([]), tf.zeros([])) for name in self.objective.names}
        # one micro-batch at a time, whatever else runs side by side
        _, gradients, ratios = tf.while_loop(
            lambda index, *_: index < self._micro_batches,
            add,
            [tf.constant(0), [tf.zeros(v.shape, v.dtype) for v in variables], zeros],
            parallel_iterations=1,
            maximum_iterations=self._micro_batches,
        )
        return [g if there else None for g, there in zip(gradients, reached, strict=True)], ratios

    def _gradients(self, batch, denominators, seed):
        """Gradients and ratios of one micro-batch; its numerators over the whole batch's denominators."""
        with tf.GradientTape() as tape:
            terms = self.objective.losses(batch, training=True, seed=seed)
            parts = [tf.math.divide_no_nan(terms["loss"][name][0], whole) for name, whole in denominators.items()]
            loss = tf.add_n(parts)
            if isinstance(self.optimizer, keras.mixed_precision.LossScaleOptimizer):
                loss = self.optimizer.get_scaled_loss(loss)
        gradients = tape.gradient(loss, self.objective.model.trainable_variables)
        return gradients, terms["loss"] | terms["metrics"]

    def _measure(self, ratios: Mapping[str, tuple[tf.Tensor, tf.Tensor]]) -> None:
        for name, (numerator, denominator) in ratios.items():
            self._means[name].update_state(tf.math.divide_no_nan(numerator, denominator), denominator)

    def _reset(self) -> None:
        for mean in self._means.values():
            mean.reset_states()

    def train_loop_begin(self):
        """Forgets the figures of the loop before."""
        self._reset()
        self.throughput.start()

    def train_loop_end(self):
        """Figures of the loop."""
        speed = self.throughput.figures()
        figures = {name: mean.result() for name, mean in self._means.items()}
        return _with_derived(figures) | {"learning_rate": tf.convert_to_tensor(self.optimizer.learning_rate)} | speed

    def eval_begin(self):
        """Forgets the figures of training."""
        self._reset()

    def eval_end(self):
        """Figures of the evaluation."""
        measured = {name: mean.result() for name, mean in self._means.items() if mean.count > 0}
        return _with_derived(measured)


def _with_derived(figures: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Adds the sum of the loss terms where there are several, and the perplexity of predicted pieces."""
    terms = [value for name, value in figures.items() if name.endswith("_loss")]
    figures = ({"loss": tf.add_n(terms)} if terms else {}) | dict(figures)
    if "masked_lm_loss" in figures:
        # of the mean over the whole loop or evaluation, since a mean of exponentials would be something else
        figures["masked_lm_perplexity"] = tf.exp(tf.minimum(figures["masked_lm_loss"], _LARGEST_EXPONENT))
    return figures


def _sums_over_replicas(values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    return {name: context.all_reduce(tf.distribute.ReduceOp.SUM, value) for name, value in values.items()}
