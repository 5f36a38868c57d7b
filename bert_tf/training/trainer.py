"""One step of training or evaluation under any strategy, and the metrics of a loop of steps.

Paper: appendix A.2 (pre-training procedure), A.3 (fine-tuning procedure).
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence

import orbit
import tensorflow as tf
import tf_keras as keras

from bert_tf.core.progress_bar import ProgressBar
from bert_tf.modeling.dropout import fold_in
from bert_tf.settings import DeviceSettings
from bert_tf.training import batch_parts, cached_gradients, gradients, metrics, optimization
from bert_tf.training.gradients import Objective
from bert_tf.training.throughput import Throughput

# With `skip_non_finite_steps`, training ends after more than this number of consecutive non-finite steps.
MOST_SKIPPED_IN_A_ROW = 10
_SECONDS_BETWEEN_LOOKS = 1.0


class Stopped(Exception):
    """Training stopped between two steps, because `must_stop` returned True or a step failed."""


def make_optimizer(
    settings: DeviceSettings,
    learning_rate: float,
    total_steps: int,
    warmup_steps: int,
    rate_factor: Callable[[tf.Variable], float] | None = None,
) -> keras.optimizers.Optimizer:
    """Returns AdamW or LAMB with warm-up and decay, and with dynamic loss scaling if the compute dtype is float16.
    `settings`: settings with the name of the optimizer, its bias correction, the decay and the compute dtype.
    `warmup_steps`: number of warm-up steps.
    `rate_factor`: function that maps a weight to a factor of its learning rate; None means 1 for all weights."""
    schedule = optimization.WarmupLinearDecay(learning_rate, total_steps, warmup_steps, settings.decay_after_warmup)
    if settings.optimizer == "lamb":
        optimizer = optimization.Lamb(schedule, rate_factor=rate_factor)
    else:
        corrects = settings.adam_bias_correction
        optimizer = optimization.AdamWeightDecay(schedule, bias_correction=corrects, rate_factor=rate_factor)
    if settings.dtype == "float16":
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


class Trainer(orbit.StandardTrainer, orbit.StandardEvaluator):
    """A model with its data; orbit's controller trains and evaluates the model.
    `strategy`: distribution strategy; create the trainer in the strategy's scope.
    `random_seed`: seed of the dropout masks. The masks also depend on the step, the replica, the micro-batch and the
      part.
    `optimizer`: the optimizer; None for evaluation only.
    `train_dataset`: distributed dataset of batches. A batch contains `input_mask`, and optionally `data_position`, the
      position in the data after the batch. Checkpoints save this position.
    `eval_dataset`: finite distributed dataset of the batches of an evaluation.
    `throughput`: counter of sequences and tokens; None creates a counter without FLOPs.
    `gradient_accumulation_steps`: number of equal micro-batches per replica. Memory contains the activations of only
      one micro-batch at a time. This number does not change the result of a step, apart from the dropout masks.
    `skip_non_finite_steps`: whether training continues after a step whose loss or gradient is not finite. Such a step
      never changes the weights.
    `compiles`: whether XLA compiles the step: on one device the whole step, and with a mirrored strategy the forward
      and backward pass of each replica. On a TPU, XLA always compiles the whole step.
    `parts`: number of parts of a micro-batch that are computed at the same time; see `batch_parts`. This number does
      not change the result of a step either, apart from the dropout masks.
    `must_stop`: function that is called between two steps, about once a second; on a TPU or with several workers, only
      at the end of a loop. If it returns True, training stops.
    `between_steps`: function that is called inside a loop, between two steps, about once a second. It is not called on
      a TPU or with several workers.
    `checkpoint`: all state that a run needs to resume.
    `checkpoint_without_optimizer`: the state in `checkpoint` without the optimizer's state.
    `random_seed`: int64 variable with the argument's value; checkpoints save this variable."""

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
        skip_non_finite_steps: bool = False,
        gradient_accumulation_steps: int = 1,
        compiles: bool = False,
        parts: int = 1,
    ):
        self.objective, self.strategy, self.optimizer = objective, strategy, optimizer
        self.global_step = orbit.utils.create_global_step()
        self.random_seed = _integer(random_seed, "random_seed")
        self.must_stop: Callable[[], bool] = lambda: False
        self.between_steps: Callable[[], None] = lambda: None
        self._micro_batches = gradient_accumulation_steps
        compiles &= not isinstance(strategy, tf.distribute.TPUStrategy)
        # Mirrored strategies run each replica in its own thread, where `inside_xla` cannot see the compiled step.
        in_threads = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
        self._compiles_step = compiles and not isinstance(strategy, in_threads)
        self._compiles_gradients = compiles and not self._compiles_step
        self._parts = parts
        self._skips = skip_non_finite_steps
        self._skipped = _integer([0, 0], "skipped_steps")  # non-finite steps: in total, and in a row up to now
        self._failed_step = _integer(0, "failed_step")  # the step that must end the training
        self.data_position = _integer([0, 0, 0], "data_position")
        self._measured_names = tuple(metric.name for metric in objective.metrics if metric.is_trained)
        names = (*self._measured_names, *(["gradient_norm"] if optimizer else []))
        self._means = {name: keras.metrics.Mean(name, dtype=tf.float32) for name in names}
        self.throughput = throughput or Throughput()
        if optimizer is not None:
            optimizer.build(objective.model.trainable_variables)
        orbit.StandardTrainer.__init__(self, train_dataset)
        orbit.StandardEvaluator.__init__(self, eval_dataset)
        entries = {"model": objective.model, "global_step": self.global_step, "data_position": self.data_position}
        if optimizer is not None:
            entries |= {"random_seed": self.random_seed, "skipped_steps": self._skipped}
        self.checkpoint_without_optimizer = tf.train.Checkpoint(**entries)
        self.checkpoint = tf.train.Checkpoint(**entries, **({"optimizer": optimizer} if optimizer else {}))

    @property
    def failed_step(self) -> int:
        """The step that must end training because it is not finite, counted from 1; 0 if there is none."""
        return int(self._failed_step.numpy())

    def non_finite_variable(self) -> str:
        """Returns the name of a weight or optimizer moment that is not finite; "" if there is none."""
        variables = [*self.objective.model.variables, *self.optimizer.variables]
        floats = [v for v in variables if v.dtype.is_floating]
        return next((v.name for v in floats if not tf.reduce_all(tf.math.is_finite(v))), "")

    def create_train_loop_fn(self):
        """Splits orbit's loop into shorter loops. The first step includes tracing and compilation, so the throughput
        excludes this step. The other steps run in loops of about a second. After each loop, the trainer checks whether
        to stop, because Python can handle signals only between loops. On a TPU, the loop is not split after its first
        step, since the TPU would be idle between shorter loops. With several workers, the loop is not split either,
        since all workers must stop at the same step."""
        loop = super().create_train_loop_fn()
        whole = (tf.distribute.TPUStrategy, tf.distribute.MultiWorkerMirroredStrategy)
        at_once = None if isinstance(self.strategy, whole) else 1
        compiled = False

        def run(iterator, num_steps):
            nonlocal compiled, at_once
            left = int(num_steps)
            while left:
                steps = 1 if not compiled else min(left, at_once or left)
                start = time.monotonic()
                loop(iterator, tf.constant(steps))
                left -= steps
                if not compiled:
                    self.throughput.start()
                    compiled = True
                elif at_once and time.monotonic() - start < _SECONDS_BETWEEN_LOOKS / 2:
                    at_once *= 2
                if (at_once or not left) and (self.failed_step or self.must_stop()):
                    raise Stopped
                # Reading metrics is a collective operation, so a single worker must never read metrics alone.
                if at_once and left:
                    self.between_steps()

        return run

    def train_step(self, iterator):
        step = self._step
        if self._compiles_step:
            # Separate operations on integers would run on the CPU, and a GPU would wait for them.
            step = tf.function(step, jit_compile=True, autograph=False)
        step(next(iterator))

    @tf.autograph.experimental.do_not_convert
    def _step(self, batch) -> None:
        bad = self.strategy.run(self._replica_train_step, args=(batch,))
        self.global_step.assign_add(1)
        self._note(tf.minimum(self.strategy.reduce(tf.distribute.ReduceOp.SUM, bad, axis=None), 1))

    def _note(self, bad: tf.Tensor) -> None:
        """Counts the steps that are not finite, and records the first step that must end training."""
        in_all, in_a_row = tf.unstack(self._skipped)
        in_a_row = bad * (in_a_row + 1)
        self._skipped.assign(tf.stack([in_all + bad, in_a_row]))
        fails = (in_a_row > (MOST_SKIPPED_IN_A_ROW if self._skips else 0)) & (self._failed_step == 0)
        self._failed_step.assign(tf.where(fails, self.global_step, self._failed_step))

    def eval_step(self, iterator):
        """Evaluates one batch on all replicas."""
        self.strategy.run(self._replica_eval_step, args=(next(iterator),))

    # AutoGraph has nothing to rewrite in `_replica_train_step` and `_replica_eval_step`, and would need half of the
    # tracing time to search these two functions.
    @tf.autograph.experimental.do_not_convert
    def _replica_train_step(self, batch):
        batch = dict(batch)
        position = batch.pop("data_position", None)
        if position is not None:
            self.data_position.assign(tf.cast(position[0], tf.int64))
        self.throughput.count(batch)
        context = tf.distribute.get_replica_context()
        seed = tf.stack([tf.cast(self.random_seed, tf.int32), tf.cast(self.global_step, tf.int32)])
        seed = fold_in(seed, context.replica_id_in_sync_group)
        scaling = isinstance(self.optimizer, keras.mixed_precision.LossScaleOptimizer)
        variables = self.objective.model.trainable_variables
        own = self.objective.denominators(batch)
        denominators = gradients.sums_over_replicas(own["loss"])
        shared = {"micro_batches": self._micro_batches, "parts": self._parts}
        shared["scaled"] = self.optimizer.get_scaled_loss if scaling else tf.identity
        if self.objective.couples_rows:
            of_batch = functools.partial(cached_gradients.accumulate, self.objective)
        else:
            names = self._measured_names
            of_batch = functools.partial(gradients.accumulate, self.objective, names, compiled=self._compiles_gradients)
        grads, numerators = of_batch(variables, batch, seed, denominators, **shared)
        loss = self.objective.loss(numerators, denominators)
        # A weight that does not affect the loss has no gradient, such as the weights of a pooler that no head reads.
        used = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
        grads, variables = zip(*used, strict=True)
        grads = _spoil_norm_unless(tf.math.is_finite(loss), grads)
        lowest_scale = not scaling or self.optimizer.loss_scale <= 1.0
        norm = optimization.clipped_update(self.optimizer, grads, variables, self.global_step)
        bad = ~tf.math.is_finite(norm)
        if scaling:  # an overflow in float16 is normal and lowers the loss scale
            broken = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.cast(~tf.math.is_finite(loss), tf.int32))
            bad &= lowest_scale | (broken > 0)
        self._measure({"gradient_norm": norm}, {"gradient_norm": tf.ones_like(norm)}, tf.math.is_finite(norm))
        self._measure(numerators, own["loss"] | own["metrics"], ~bad)
        return tf.cast(bad, tf.int64)

    @tf.autograph.experimental.do_not_convert
    def _replica_eval_step(self, batch):
        batch = {name: column for name, column in batch.items() if name != "data_position"}
        denominators = self.objective.denominators(batch)
        of_rows = functools.partial(self.objective.numerators, training=False, seed=None)
        numerators = batch_parts.summed(of_rows, batch, self._parts)
        self._measure(numerators["loss"] | numerators["metrics"], denominators["loss"] | denominators["metrics"])

    def _measure(self, numerators: Mapping, denominators: Mapping, counts: tf.Tensor | bool = True) -> None:
        for name, numerator in numerators.items():
            denominator = denominators[name]
            mean = tf.where(counts, tf.math.divide_no_nan(numerator, denominator), 0.0)
            self._means[name].update_state(mean, tf.where(counts, denominator, 0.0))

    def _reset(self) -> None:
        for mean in self._means.values():
            mean.reset_states()

    def train_loop_begin(self):
        self._reset()
        self.throughput.start()

    def train_loop_end(self):
        speed = self.throughput.rates()
        if self._skips:
            speed["skipped_steps"] = self._skipped[0]
        return self._measured() | {"learning_rate": tf.convert_to_tensor(self.optimizer.learning_rate)} | speed

    def evaluate(self, num_steps: tf.Tensor):
        """Evaluates at most `num_steps` batches, shows the progress, and returns the metrics."""
        with ProgressBar("evaluating", int(num_steps), "steps", compiles=True) as self._evaluation:
            return super().evaluate(num_steps)

    def eval_begin(self):
        self._reset()

    def eval_reduce(self, state=None, step_outputs=None):
        """Counts a step on the progress display."""
        self._evaluation.update()

    def eval_end(self):
        return self._measured()

    def _measured(self) -> dict[str, tf.Tensor]:
        means = {name: mean.result() for name, mean in self._means.items() if mean.count > 0}
        return metrics.add_derived(means, self.objective.metrics)


def _spoil_norm_unless(finite: tf.Tensor, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Makes the gradients' global norm not finite if the loss is not finite, so that one check covers loss and norm."""
    dense = [i for i, gradient in enumerate(gradients) if isinstance(gradient, tf.Tensor)]
    smallest = min(dense, key=lambda i: gradients[i].shape.num_elements())
    spoilt = gradients[smallest] + tf.where(finite, 0.0, float("nan"))
    return [spoilt if i == smallest else gradient for i, gradient in enumerate(gradients)]


def _integer(value, name: str) -> tf.Variable:
    """Returns an int64 variable with the same value on all replicas; int32 variables cannot be on a GPU."""
    aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(value, trainable=False, dtype=tf.int64, aggregation=aggregation, name=name)
