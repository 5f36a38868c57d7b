"""AdamW as in google-research/bert, and LAMB, both with linear warm-up and decay.

Paper: appendix A.2: Adam, learning rate 1e-4, beta 0.9 and 0.999, L2 weight decay 0.01, warm-up over
the first 10,000 steps, linear decay. The published code leaves out Adam's bias correction, adds the
decay to the update rather than to the loss, and clips gradients to a global norm of 1.
LAMB: You et al., "Large Batch Optimization for Deep Learning", algorithm 2.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras as keras

from bert_tf.modeling.compilation import inside_xla

CLIP_NORM = 1.0
# Weight decay does not apply to biases, or to the scales and offsets of layer norms.
_NOT_DECAYED = ("bias", "gamma", "beta")
# A weight with at least this many elements benefits from a compiled update.
_LARGE = 1 << 16
# The gradient of an embedding table stays sparse if its number of entries is at most this share of the table's rows.
# The norm and the scaling of a sparse gradient take less time.
_FEW_ROWS = 0.25


class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly from 0 during the warm-up, and then decays linearly to 0.
    `peak`: the value of --learning_rate.
    `total_steps`: step at which the rate is 0.
    `warmup_steps`: number of warm-up steps; 0 for no warm-up.
    `decay_after_warmup`: whether the line of the decay starts at `peak` at the end of the warm-up. Otherwise, the line
      starts at step 0, as in google-research/bert, so the rate never reaches `peak`."""

    def __init__(self, peak: float, total_steps: int, warmup_steps: int, decay_after_warmup: bool = False):
        super().__init__()
        self.peak, self.total_steps, self.warmup_steps = peak, total_steps, warmup_steps
        self.decay_after_warmup = decay_after_warmup

    def __call__(self, step):
        """Returns the learning rate at `step`, float32; `step` is a scalar of any integer dtype."""
        step = tf.cast(step, tf.float32)
        total = tf.constant(self.total_steps, tf.float32)
        start = tf.constant(self.warmup_steps if self.decay_after_warmup else 0, tf.float32)
        decayed = self.peak * (1.0 - (tf.minimum(step, total) - start) / (total - start))
        if not self.warmup_steps:
            return decayed
        warm = self.peak * step / tf.constant(self.warmup_steps, tf.float32)
        return tf.where(step < self.warmup_steps, warm, decayed)


class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, by default without bias correction. m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2)
    g^2;  w = w - lr (m' / (sqrt(v') + eps) + decay w) where m' is m and v' is v, or with bias correction m / (1 - b1^t)
    and v / (1 - b2^t) for update t, counted from 1. `iterations` counts updates. A step whose gradients are not finite
    is skipped. A skipped step does not change the moments, so the bias correction must not count skipped steps.
    `learning_rate`: a number or a schedule.
    `weight_decay_rate`: rate of the weight decay, which applies to all weights except biases and layer norms.
    `bias_correction`: whether to correct the moments for their start at zero, and to use an epsilon of 1e-8, as in
      Adam's paper and in PyTorch. Otherwise, epsilon is 1e-6 as in google-research/bert.
    `rate_factor`: function that returns the factor of the learning rate for a weight; None means 1 for all weights."""

    beta_1, beta_2 = 0.9, 0.999

    def __init__(
        self,
        learning_rate,
        weight_decay_rate: float = 0.01,
        bias_correction: bool = False,
        rate_factor: Callable[[tf.Variable], float] | None = None,
    ):
        super().__init__(name=type(self).__name__, jit_compile=False)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.bias_correction = bias_correction
        self.epsilon = 1e-8 if bias_correction else 1e-6
        self.weight_decay_rate = weight_decay_rate
        self._rate_factor = rate_factor or (lambda variable: 1.0)

    def build(self, var_list):
        """Creates both moments of every weight."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._m = [self.add_variable_from_reference(v, "m") for v in var_list]
        self._v = [self.add_variable_from_reference(v, "v") for v in var_list]
        # Create the lists here: inside a step, the weights have other names on all replicas but the first.
        self._decayed = [decays(v) for v in var_list]
        self._factors = [self._rate_factor(v) for v in var_list]
        self._built = True

    def update_step(self, gradient, variable):
        self._update(variable, gradient, tf.constant(1.0), tf.constant(True), _call)

    def apply_scaled(
        self, gradients, variables, factor: tf.Tensor, finite: tf.Tensor, step: tf.Variable | None
    ) -> None:
        """Scales the gradients and applies one step to all weights. Call this method in replica context, with the same
        gradients and scalars on all replicas.
        `gradients`: the gradients, one per weight. The gradient of an embedding table may be `tf.IndexedSlices` without
          duplicate indices.
        `factor`: float32 scalar that multiplies all gradients.
        `finite`: bool scalar; if false, weights, moments and `iterations` do not change.
        `step`: int64 scalar for the learning-rate schedule, the same on all replicas; None means `iterations`."""
        step = self.iterations if step is None else step

        def apply(distribution, pairs, factor, finite, updates):
            if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
                self._current_learning_rate.assign(self._learning_rate(step))
            # The scalars are computed once for all weights. This saves a thousand small operations.
            scalars = functools.cache(_call)
            for gradient, variable in pairs:
                arguments = (gradient, factor, finite, scalars)
                distribution.extended.update(variable, self._update, arguments, group=False)
            self.iterations.assign_add(updates)

        with tf.init_scope():
            self.build(variables)
        pairs = list(zip(gradients, variables, strict=True))
        # As in Keras's `apply_gradients`: some strategies require one merge call for all mirrored weights.
        merge = tf.__internal__.distribute.interim.maybe_merge_call
        merge(apply, tf.distribute.get_strategy(), pairs, factor, finite, tf.cast(finite, tf.int64))

    def _update(self, variable, gradient, factor, finite, scalars) -> None:
        index = self._index_dict[self._var_key(variable)]
        m, v = self._m[index], self._v[index]
        of_replica = factor.ref(), finite.ref(), self._factors[index]
        if self._has_kernel(variable):
            of_kernel = scalars(self._kernel_scalars, *of_replica)
            self._step_by_kernel(variable, m, v, gradient, of_kernel, self._decayed[index])
            return
        # Convert a sparse gradient to a dense tensor, so that moments also decay in rows without a gradient.
        gradient = tf.convert_to_tensor(gradient)
        large = variable.shape.num_elements() >= _LARGE and not inside_xla()
        stepped = self._stepped_compiled if large else self._stepped_traced
        old = (variable, m, v)
        # Pass tensors: a traced function would use one mirrored variable for all others of the same shape.
        values = map(tf.convert_to_tensor, old)
        new = stepped(*values, gradient, *scalars(self._scalars, *of_replica), self._decayed[index])
        for one, value in zip(old, new, strict=True):
            one.assign(value)

    def _has_kernel(self, variable) -> bool:
        """Returns whether TensorFlow's Adam kernel updates a weight: only float32 weights on a CPU, outside XLA."""
        plain = not inside_xla() and not isinstance(variable, tf.distribute.DistributedValues)
        return plain and variable.dtype == tf.float32 and "CPU" in variable.device

    def _scalars(self, factor, finite, rate_factor: float) -> tuple[tf.Tensor, ...]:
        """Returns the learning rate for one `rate_factor`, the number of updates, and the values of the references."""
        rate = tf.cast(self.learning_rate, tf.float32) * rate_factor
        return rate, tf.convert_to_tensor(self.iterations), factor.deref(), finite.deref()

    def _kernel_scalars(self, factor, finite, rate_factor: float) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        """Computes the gradient's factor, the weight's factor, and the kernel's scalars for one `rate_factor`. If
        `finite` is false, the scalars make the kernel multiply weights and moments by 1 and add 0."""
        rate, iterations, factor, finite = self._scalars(factor, finite, rate_factor)
        kept = tf.where(finite, 1.0 - rate * self.weight_decay_rate, 1.0)
        epsilon = tf.constant(self.epsilon)
        if self.bias_correction:  # m' / (sqrt(v') + eps) = sqrt(c2) / c1 * m / (sqrt(v) + eps * sqrt(c2))
            first, second = self._corrections(iterations, tf.float32)
            rate *= tf.sqrt(second) / first
            epsilon *= tf.sqrt(second)
        zero = tf.constant(0.0)  # the rate includes the correction
        options = {
            "lr": tf.where(finite, rate, 0.0),
            "beta1": tf.where(finite, self.beta_1, 1.0),
            "beta2": tf.where(finite, self.beta_2, 1.0),
            "epsilon": epsilon,
            "beta1_power": zero,
            "beta2_power": zero,
        }
        return tf.where(finite, tf.cast(factor, tf.float32), 0.0), kept, options

    def _step_by_kernel(self, variable, m, v, gradient, scalars: tuple, decayed: bool) -> None:
        """Updates a weight and its moments like `_stepped`; on a CPU, takes a quarter of the time of compiled code."""
        factor, kept, options = scalars
        if isinstance(gradient, tf.IndexedSlices):  # scale only these rows, then make the gradient dense
            values = tf.math.multiply_no_nan(gradient.values, factor)
            gradient = tf.convert_to_tensor(tf.IndexedSlices(values, gradient.indices, gradient.dense_shape))
        else:
            gradient = tf.math.multiply_no_nan(gradient, factor)
        if decayed:
            variable.assign(variable * kept)
        tf.raw_ops.ResourceApplyAdam(var=variable.handle, m=m.handle, v=v.handle, grad=gradient, **options)

    def _stepped(self, weight, m, v, gradient, rate, iterations, factor, finite, decayed: bool):
        """Returns the weight and its moments after a step; the values are unchanged if `finite` is false."""
        gradient *= tf.cast(factor, weight.dtype)
        rate = tf.cast(rate, weight.dtype)
        next_m = self.beta_1 * m + (1.0 - self.beta_1) * gradient
        next_v = self.beta_2 * v + (1.0 - self.beta_2) * tf.square(gradient)
        update = self._direction(next_m, next_v, iterations)
        if decayed:
            update += self.weight_decay_rate * weight
            update *= self._layer_rate(weight, update)
        return tuple(
            tf.where(finite, new, old) for new, old in ((weight - rate * update, weight), (next_m, m), (next_v, v))
        )

    # Compiled code reads and writes each value once. Separate operations are bound by memory bandwidth.
    _stepped_compiled = tf.function(_stepped, jit_compile=True, autograph=False)
    # Weights of one shape share one trace. A step of base would otherwise need seconds to trace its 199 updates.
    _stepped_traced = tf.function(_stepped, autograph=False)

    def _direction(self, m: tf.Tensor, v: tf.Tensor, iterations: tf.Tensor) -> tf.Tensor:
        """Returns Adam's update before the learning rate and the weight decay are applied."""
        if self.bias_correction:
            first, second = self._corrections(iterations, m.dtype)
            m, v = m / first, v / second
        return m / (tf.sqrt(v) + self.epsilon)

    def _corrections(self, iterations: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns 1 - b1^t and 1 - b2^t, which correct for moments that start at zero."""
        update = tf.cast(iterations + 1, dtype)
        return 1.0 - tf.pow(tf.cast(self.beta_1, dtype), update), 1.0 - tf.pow(tf.cast(self.beta_2, dtype), update)

    def _layer_rate(self, weight: tf.Tensor, update: tf.Tensor) -> tf.Tensor | float:
        return 1.0


class Lamb(AdamWeightDecay):
    """LAMB: Adam with bias correction and decay; an update's norm is proportional to the norm of the updated weight. u
    = m' / (sqrt(v') + eps) + decay w;  w = w - lr |w| / |u| u Biases and layer norms are neither decayed nor scaled.
    The arguments are those of `AdamWeightDecay`, except `bias_correction`. Epsilon is 1e-6."""

    def __init__(self, learning_rate, **kwargs):
        super().__init__(learning_rate, bias_correction=True, **kwargs)
        self.epsilon = 1e-6

    def _has_kernel(self, variable) -> bool:
        return False

    def _layer_rate(self, weight: tf.Tensor, update: tf.Tensor) -> tf.Tensor:
        weight_norm, update_norm = tf.norm(weight), tf.norm(update)
        return tf.where((weight_norm > 0) & (update_norm > 0), tf.math.divide_no_nan(weight_norm, update_norm), 1.0)


def _call(function: Callable, *arguments):
    return function(*arguments)


def decays(variable: tf.Variable) -> bool:
    """Returns whether weight decay applies to a weight. Biases and layer norms are not decayed."""
    return variable.name.split("/")[-1].split(":")[0] not in _NOT_DECAYED


def clipped_update(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[tf.Tensor],
    variables: Sequence[tf.Variable],
    step: tf.Variable | None = None,
) -> tf.Tensor:
    """Sums gradients over replicas, clips the sum by its global norm, and applies one step. Call this function in
    replica context. Clipping after the sum makes the step independent of the number of replicas. If the norm is not
    finite, weights, moments and `iterations` do not change on any replica. With a `LossScaleOptimizer`, the gradients
    belong to the scaled loss, and the scale is adapted.
    `optimizer`: `AdamWeightDecay` or `Lamb`, or a `LossScaleOptimizer` around one of them.
    `gradients`: gradients of this replica's share of the loss, one per weight.
    `step`: int64 scalar for the learning-rate schedule: the number of previous steps, including skipped steps. None
      means the optimizer's `iterations`, which counts updates.
    Returns the global norm of the summed gradients before clipping, float32 scalar."""
    scaling = isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer)
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync > 1:
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
    else:
        gradients = [_without_duplicates(*of_one) for of_one in zip(gradients, variables, strict=True)]
    values = [gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient for gradient in gradients]
    unscale = 1.0 / optimizer.loss_scale if scaling else tf.constant(1.0)
    norm = unscale * tf.sqrt(2.0 * tf.add_n([tf.cast(tf.nn.l2_loss(g), tf.float32) for g in values]))
    finite = tf.math.is_finite(norm)
    factor = unscale * CLIP_NORM / tf.maximum(norm, CLIP_NORM)
    (optimizer.inner_optimizer if scaling else optimizer).apply_scaled(gradients, variables, factor, finite, step)
    if scaling:
        _adapt_loss_scale(optimizer, norm)
    return norm


def _without_duplicates(gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> tf.Tensor | tf.IndexedSlices:
    """Sums the duplicates of each row in an embedding table's gradient; converts gradients with many rows to dense."""
    entries = None if isinstance(gradient, tf.Tensor) else gradient.indices.shape[0]
    if entries is None or entries > _FEW_ROWS * variable.shape[0] or inside_xla():
        return tf.convert_to_tensor(gradient)
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, tf.constant(variable.shape.as_list(), rows.dtype))


def _adapt_loss_scale(optimizer: keras.mixed_precision.LossScaleOptimizer, norm: tf.Tensor) -> None:
    """Halves the loss scale after a norm that is not finite, and doubles it after many finite norms."""

    def adapt(distribution, norm):
        optimizer._loss_scale.update([norm])  # Keras's `apply_gradients` passes all gradients here

    if optimizer.dynamic:
        merge = tf.__internal__.distribute.interim.maybe_merge_call
        merge(adapt, tf.distribute.get_strategy(), norm)
