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
    ):
        self.objective, self.strategy, self.optimizer = objective, strategy, optimizer
        self.global_step = orbit.utils.create_global_step()
        self._seed = random_seed
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
        scaling = isinstance(self.optimizer, keras.mixed_precision.LossScaleOptimizer)
        with tf.GradientTape() as tape:
            terms = self.objective.losses(batch, training=True, seed=seed)
            loss = tf.add_n([_share_of_mean(*ratio) for ratio in terms["loss"].values()])
            if scaling:
                loss = self.optimizer.get_scaled_loss(loss)
        variables = self.objective.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        # a weight that the loss does not reach (a pooler without its task) has no gradient
        used = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        gradients, variables = zip(*used, strict=True)
        norm = optimization.clipped_update(self.optimizer, gradients, variables)
        # float16 overflows now and then; such a step is passed over and the loss scale lowered
        finite = tf.cast(tf.math.is_finite(norm) | (not scaling), tf.float32)
        norm = tf.where(finite > 0, norm, 0.0)
        self._measure(terms["loss"] | terms["metrics"] | {"gradient_norm": (norm, finite)})

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


def _share_of_mean(numerator: tf.Tensor, denominator: tf.Tensor) -> tf.Tensor:
    """This replica's part of a mean over all replicas; the parts' sum is the mean."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync > 1:
        denominator = context.all_reduce(tf.distribute.ReduceOp.SUM, denominator)
    return tf.math.divide_no_nan(numerator, denominator)
