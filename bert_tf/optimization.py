"""AdamW as the original wrote it, with linear warm-up and decay.

Paper: appendix A.2: Adam, learning rate 1e-4, beta 0.9 and 0.999, L2 weight decay 0.01, warm-up over
the first 10,000 steps, linear decay. The published code leaves out Adam's bias correction, adds the
decay to the update rather than to the loss, and clips gradients to a global norm of 1.
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
    """Adam with decoupled weight decay and without bias correction.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w = w - lr (m / (sqrt(v) + eps) + decay w)

    Args:
      learning_rate: a number or a schedule.
      weight_decay_rate: decay of all weights but biases and layer norms.
      beta_1: decay of the first moment.
      beta_2: decay of the second moment.
      epsilon: added to the square root.
    """

    def __init__(
        self,
        learning_rate,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        name: str = "AdamWeightDecay",
    ):
        super().__init__(name=name, jit_compile=False)
        self._learning_rate = self._build_learning_rate(learning_rate)
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
        rate = tf.cast(self.learning_rate, variable.dtype)
        next_m = m.assign(self.beta_1 * m + (1.0 - self.beta_1) * gradient)
        next_v = v.assign(self.beta_2 * v + (1.0 - self.beta_2) * tf.square(gradient))
        update = next_m / (tf.sqrt(next_v) + self.epsilon)
        if self._decayed[index]:
            update += self.weight_decay_rate * variable
        variable.assign_sub(rate * update)

    def get_config(self):
        """The constructor's arguments."""
        return super().get_config() | {
            "learning_rate": self._serialize_hyperparameter(self._learning_rate),
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }


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
