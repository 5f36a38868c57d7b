"""Dropout with masks that are computed and never stored.

Paper: appendix A.2: a dropout of 0.1 on all layers.

A mask is a function of a seed, a site (the number of the dropout in the network) and the index of each value. The
forward pass, the backward pass and a resumed run therefore compute the same mask. For the same reason, the plain
operations of `bert_tf.encoder` and the fused operations compute the same mask.
"""

import functools
from collections.abc import Sequence

import tensorflow as tf


def dropout_seed(training: bool, seed: tf.Tensor | None) -> tf.Tensor | None:
    """Returns the seed of a call: None without training, otherwise `seed`, or a random seed if `seed` is None."""
    if not training:
        return None
    if seed is None:
        return tf.random.uniform([2], tf.int32.min, tf.int32.max, tf.int32)
    return seed


def fold_in(seed: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
    """Derives a seed, int32 [2], from a seed, int32 [2], and an integer. XLA derives the same seeds as TensorFlow,
    unlike with `stateless_fold_in`."""
    number = tf.bitcast(tf.cast(number, tf.int32), tf.uint32)
    first, second = tf.unstack(tf.bitcast(seed, tf.uint32))
    key = _mix(number * _word(0x9E3779B9) + second, first)
    return tf.bitcast(tf.stack([_mix(first, key), _mix(second, ~key)]), tf.int32)


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None, site: tf.Tensor | int) -> tf.Tensor:
    """Sets a share of the values to zero and scales the other values by 1 / (1 - rate).
    `rate`: share of the values that are dropped.
    `seed`: int32 [2]; None drops nothing.
    `site`: int32 []; see `dropout_mask`.
    Returns float of the shape and dtype of x."""
    if rate == 0 or seed is None:
        return x
    mask = dropout_mask(static_or_dynamic_shape(x), rate, seed, site)
    return tf.where(mask, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))


def dropout_mask(shape: Sequence[int], rate: float, seed: tf.Tensor, site: tf.Tensor | int) -> tf.Tensor:
    """Computes which values a dropout keeps. The index of each value is hashed to 32 random bits. The hash needs only
    multiplications and shifts, so XLA fuses the mask into the operation that uses it.
    `shape`: shape of the values.
    `rate`: share of the values that are dropped.
    `seed`: int32 [2].
    `site`: int32 [], the number of this dropout in the network.
    Returns bool of this shape; True keeps a value."""
    # The range is outside of the trace, where TensorFlow would compute it in advance and store it.
    index = tf.reshape(tf.range(tf.reduce_prod(shape)), shape)
    return _mask(index, rate, seed, tf.convert_to_tensor(site))


# Masks of one shape share one trace. Without it, tracing the 86 masks of base's step would take seconds.
@functools.partial(tf.function, autograph=False)
def _mask(index: tf.Tensor, rate: float, seed: tf.Tensor, site: tf.Tensor) -> tf.Tensor:
    seed, site = tf.bitcast(seed, tf.uint32), tf.bitcast(site, tf.uint32)
    key = _mix(seed[0] + site * _word(0x9E3779B9), seed[1])
    bits = _mix(tf.bitcast(index, tf.uint32) * _word(0x9E3779B9) + key, _mix(key, seed[0]))
    return bits >= _word(round(rate * 2**32))


def static_or_dynamic_shape(x: tf.Tensor) -> tf.TensorShape | tf.Tensor:
    return x.shape if x.shape.is_fully_defined() else tf.shape(x)


def _word(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint32)


def _mix(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Hashes uint32 x with a key: each bit of the result depends on all bits of x and of the key. Each of two rounds
    multiplies x and combines its upper half with its lower half. The constants have the least bias (C. Wellons,
    "Prospecting for hash functions"). The key enters between the rounds, since otherwise two keys would give shifted
    copies of one sequence."""
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _word(16))) * _word(0x7FEB352D)
    x = tf.bitwise.bitwise_xor(x, key)
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _word(15))) * _word(0x846CA68B)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _word(16)))
