"""Chains of a layer that are not matrix products, each computed in one pass, forward and backward.

Paper: section 3 ("Model Architecture"); the chains are dropout, residual and normalisation, bias and
activation, the softmax of attention, and the loss of the masked LM (section 3.1).

Letters: L layers, H hidden size, A heads, D = H / A; B batch, S sequence length, N = B S rows.

Op by op such a chain is bound by memory: each op reads and writes all of its values. Compiled, a chain
reads its inputs once; its gradient is computed from these inputs again, so nothing else is kept for the
backward pass. Sums, softmax and normalisation are computed in float32 whatever the dtype.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

LAYER_NORM_EPSILON = 1e-12
# Values from which on a chain is worth compiling.
_LARGE = 1 << 16

ACTIVATIONS = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_erf": lambda x: tf.nn.gelu(x, approximate=False),
    "relu": tf.nn.relu,
    "tanh": tf.nn.tanh,
    "linear": tf.identity,
}


def chain(differentiable: int) -> Callable:
    """Makes one compiled pass of a function of tensors, and another one of its gradient.

    Args:
      differentiable: how many of the arguments, the first ones, have a gradient. Keyword arguments are
        Python values.

    Returns:
      A decorator. Small or unknown shapes are computed op by op, with the same gradient.
    """

    def decorate(function):
        compiled = tf.function(function, jit_compile=True)

        def gradient(arguments, upstream, **options):
            inputs = arguments[:differentiable]
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = function(*arguments, **options)
            return tape.gradient(outputs, inputs, upstream)

        compiled_gradient = tf.function(gradient, jit_compile=True)

        @functools.wraps(function)
        def fused(*arguments, **options):
            large = (arguments[0].shape.num_elements() or 0) >= _LARGE

            @tf.custom_gradient
            def run(*arguments):
                def backward(*upstream):
                    structure = upstream if len(upstream) > 1 else upstream[0]
                    gradients = (compiled_gradient if large else gradient)(arguments, structure, **options)
                    return (*gradients, *[None] * (len(arguments) - differentiable))

                return (compiled if large else function)(*arguments, **options), backward

            return run(*arguments)

        return fused

    return decorate


def kept(shape: Sequence[int], rate: float, seed: tf.Tensor, site: tf.Tensor) -> tf.Tensor:
    """Which values a dropout keeps: a function of seed, site and the value's place alone.

    Each place is counted and the count mixed to 32 random bits, by multiplications and shifts that fuse
    into any chain, so that a mask is never stored.

    Args:
      shape: of the values.
      rate: share of the values dropped.
      seed: int32 [2].
      site: int32 scalar, the number of this dropout in the network.

    Returns:
      bool, of the shape.
    """
    seed, site = tf.bitcast(seed, tf.uint32), tf.bitcast(tf.convert_to_tensor(site), tf.uint32)
    key = _mixed(seed[0] + site * _word(0x9E3779B9), seed[1])
    count = tf.reshape(tf.range(tf.reduce_prod(shape)), shape)
    bits = _mixed(tf.bitcast(count, tf.uint32) * _word(0x9E3779B9) + key, _mixed(key, seed[0]))
    return bits >= _word(round(rate * 2**32))


def _word(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint32)


def _mixed(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """A word each of whose bits depends on all bits of x and of the key.

    Two rounds of multiplying and folding the upper half into the lower, with constants of least bias
    (C. Wellons, "Prospecting for hash functions"); the key comes in between, so that two keys give no
    shifted copies of each other's sequence.
    """
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _word(16))) * _word(0x7FEB352D)
    x = tf.bitwise.bitwise_xor(x, key)
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _word(15))) * _word(0x846CA68B)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _word(16)))


def dropped(x: tf.Tensor, rate: float, seed: tf.Tensor, site: tf.Tensor) -> tf.Tensor:
    """Sets a share of the values of float x to zero and scales up the rest by 1 / (1 - rate); see `kept`."""
    if rate == 0:
        return x
    shape = x.shape if x.shape.is_fully_defined() else tf.shape(x)
    return tf.where(kept(shape, rate, seed, site), x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))


def normal(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Layer normalisation of float32 [..., H]; gamma, beta float32 [H]."""
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma + beta


@chain(differentiable=2)
def biased_activation(x, bias, *, name: str):
    """The activation of x + bias: float [N, H], float32 [H]."""
    return tf.cast(ACTIVATIONS[name](tf.cast(x, tf.float32) + bias), x.dtype)


@chain(differentiable=5)
def residual_norm(x, residual, bias, gamma, beta, seed, site, *, rate: float):
    """LayerNorm(residual + dropout(x + bias)): float [N, H] twice, float32 [H]; seed and site as in `kept`."""
    branch = dropped(tf.cast(x, tf.float32) + bias, rate, seed, site)
    return tf.cast(normal(tf.cast(residual, tf.float32) + branch, gamma, beta), x.dtype)


@chain(differentiable=3)
def norm_dropout(x, gamma, beta, seed, site, *, rate: float):
    """dropout(LayerNorm(x)), float [N, H]; seed and site as in `kept`."""
    return tf.cast(dropped(normal(tf.cast(x, tf.float32), gamma, beta), rate, seed, site), x.dtype)


@chain(differentiable=1)
def attention_probabilities(scores, attention_bias, seed, site, *, rate: float):
    """dropout(softmax(scores + attention_bias)): float [B, A, S, S], float32 [B, 1, 1 or S, S]."""
    probabilities = tf.nn.softmax(tf.cast(scores, tf.float32) + attention_bias)
    return tf.cast(dropped(probabilities, rate, seed, site), scores.dtype)


@chain(differentiable=2)
def split_heads(x, bias, *, length: int, heads: int):
    """Queries, keys and values of x + bias, queries scaled by 1 / sqrt(D).

    Args:
      x: float [N, 3 H]: queries, keys, values.
      bias: float32 [3 H].
      length: S.
      heads: A.

    Returns:
      Three of float [B, A, S, D].
    """
    size = x.shape[1] // (3 * heads)
    parts = tf.reshape(tf.cast(x, tf.float32) + bias, [-1, length, 3, heads, size])
    query, key, value = (tf.transpose(part, [0, 2, 1, 3]) for part in tf.unstack(parts, axis=2))
    return tuple(tf.cast(part, x.dtype) for part in (query * size**-0.5, key, value))
