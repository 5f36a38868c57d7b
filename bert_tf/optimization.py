"""AdamW as the original wrote it, and LAMB, with linear warm-up and decay.

Paper: appendix A.2: Adam, learning rate 1e-4, beta 0.9 and 0.999, L2 weight decay 0.01, warm-up over
the first 10,000 steps, linear decay. The published code leaves out Adam's bias correction, adds the
decay to the update rather than to the loss, and clips gradients to a global norm of 1.
LAMB: You et al., "Large Batch Optimization for Deep Learning", algorithm 2.
"""

from collections.abc import Sequence

import tensorflow as tf
import tf_keras as keras

CLIP_NORM = 1.0
# Layer-norm scales and offsets, and biases, are not decayed.
_NOT_DECAYED = ("bias", "gamma", "beta")


class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0 over the warm-up, then follows the line that reaches 0 at the last step.

    As in the original the decay is counted from step 0, not from the end of the warm-up.

    Args:
      peak: the learning rate that the flags name.
      total_steps: step at which the rate is 0.
      warmup_steps: steps of rising; 0 for none.
    """

    def __init__(self, peak: float, total_steps: int, warmup_steps: int):
        super().__init__()
        self.peak, self.total_steps, self.warmup_steps = peak, total_steps, warmup_steps

    def __call__(self, step):
        """The learning rate at a step (scalar of any integer dtype), float32."""
        step = tf.cast(step, tf.float32)
        total = tf.constant(self.total_steps, tf.float32)
        decayed = self.peak * (1.0 - tf.minimum(step, total) / total)
        if not self.warmup_steps:
            return decayed
        warm = self.peak * step / tf.constant(self.warmup_steps, tf.float32)
        return tf.where(step < self.warmup_steps, warm, decayed)

    def get_config(self):
        """The constructor's arguments."""
        return {"peak": self.peak, "total_steps": self.total_steps, "warmup_steps": self.warmup_steps}


class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, without bias correction unless it is asked for.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w = w - lr (c m / (sqrt(v) + eps) + decay w)
    where c is 1, or corrected sqrt(1 - b2^t) / (1 - b1^t) at the step t, counted from 1.

    Args:
      learning_rate: a number or a schedule.
      weight_decay_rate: decay of all weights but biases and layer norms.
      beta_1: decay of the first moment.
      beta_2: decay of the second moment.
      epsilon: added to the square root.
      bias_correction: scale the first steps up by c, as Adam's authors and tf-models-official do.
    """

    def __init__(
        self,
        learning_rate,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        bias_correction: bool = False,
        name: str = "AdamWeightDecay",
    ):
        super().__init__(name=name, jit_compile=False)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.bias_correction = bias_correction
        self.weight_decay_rate = weight_decay_rate
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, var_list):
        """Makes both moments of every weight."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._m = [self.add_variable_from_reference(v, "m") for v in var_list]
        self._v = [self.add_variable_from_reference(v, "v") for v in var_list]
        # asked here, since in a step every replica but the first has its own name for a weight
        self._decayed = [decays(v) for v in var_list]
        self._built = True

    def update_step(self, gradient, variable):
        """Applies one update to one weight."""
        if isinstance(gradient, tf.IndexedSlices):
            # the moments of rows that a step does not touch decay too, as with the original's dense ones
            gradient = tf.convert_to_tensor(gradient)
        index = self._index_dict[self._var_key(variable)]
        m, v = self._m[index], self._v[index]
        next_m = m.assign(self.beta_1 * m + (1.0 - self.beta_1) * gradient)
        next_v = v.assign(self.beta_2 * v + (1.0 - self.beta_2) * tf.square(gradient))
        update = self._direction(next_m, next_v)
        if self._decayed[index]:
            update += self.weight_decay_rate * variable
            update *= self._layer_rate(variable, update)
        variable.assign_sub(tf.cast(self.learning_rate, variable.dtype) * update)

    def _direction(self, m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
        """Adam's update before rate and decay."""
        direction = m / (tf.sqrt(v) + self.epsilon)
        if self.bias_correction:
            first, second = self._corrections(m.dtype)
            direction *= tf.sqrt(second) / first
        return direction

    def _corrections(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """1 - b1^t and 1 - b2^t: how much of each moment is there yet, having started from zero."""
        step = tf.cast(self.iterations + 1, dtype)
        return 1.0 - tf.pow(tf.cast(self.beta_1, dtype), step), 1.0 - tf.pow(tf.cast(self.beta_2, dtype), step)

    def _layer_rate(self, variable: tf.Variable, update: tf.Tensor) -> tf.Tensor | float:
        """Factor of the learning rate for one weight."""
        return 1.0

    def get_config(self):
        """The constructor's arguments."""
        return {
            "name": self.name,
            "learning_rate": self._serialize_hyperparameter(self._learning_rate),
            "bias_correction": self.bias_correction,
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }


class Lamb(AdamWeightDecay):
    """LAMB: corrected Adam with decay, each weight's update scaled to the weight's own norm.

    m' = m / (1 - b1^t);  v' = v / (1 - b2^t);  u = m' / (sqrt(v') + eps) + decay w;  w = w - lr |w| / |u| u

    Biases and layer norms are neither decayed nor scaled.

    Args:
      learning_rate: a number or a schedule.
      **kwargs: `AdamWeightDecay`'s, without `bias_correction`.
    """

    def __init__(self, learning_rate, name: str = "Lamb", **kwargs):
        super().__init__(learning_rate, name=name, **kwargs)

    def _direction(self, m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
        first, second = self._corrections(m.dtype)
        return (m / first) / (tf.sqrt(v / second) + self.epsilon)

    def _layer_rate(self, variable: tf.Variable, update: tf.Tensor) -> tf.Tensor:
        weight_norm, update_norm = tf.norm(variable), tf.norm(update)
        return tf.where((weight_norm > 0) & (update_norm > 0), tf.math.divide_no_nan(weight_norm, update_norm), 1.0)


def decays(variable: tf.Variable) -> bool:
    """Whether weight decay applies: to all but biases and layer norms."""
    return variable.name.split("/")[-1].split(":")[0] not in _NOT_DECAYED


def summed_and_clipped(
    gradients: Sequence[tf.Tensor], clip_norm: float = CLIP_NORM
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Sums gradients over the replicas, then clips them by their global norm.

    Called in replica context. Clipping after the sum makes the step the same however many replicas
    share the batch.

    Args:
      gradients: one a weight, of this replica's share of the loss.
      clip_norm: largest global norm let through.

    Returns:
      The gradients to apply on every replica, and their norm before clipping.
    """
    dense = [tf.convert_to_tensor(g) for g in gradients]
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync > 1:
        dense = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
    clipped, norm = tf.clip_by_global_norm(dense, clip_norm)
    return list(clipped), norm
