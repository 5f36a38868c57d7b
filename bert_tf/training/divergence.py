"""The loss of a teacher's outputs.

Paper: G. Hinton et al., "Distilling the Knowledge in a Neural Network", 2015.
"""

import tensorflow as tf


def divergence(teacher: tf.Tensor, student: tf.Tensor, temperature: float, axis: int = -1) -> tf.Tensor:
    """Computes T^2 KL(softmax(teacher / T), softmax(student / T)) along an axis, for logits of the same shape. The
    factor T^2 gives gradients of similar size for any temperature T."""
    of_teacher, of_student = (tf.nn.log_softmax(logits / temperature, axis) for logits in (teacher, student))
    return temperature**2 * tf.reduce_sum(tf.exp(of_teacher) * (of_teacher - of_student), axis)
