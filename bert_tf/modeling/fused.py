"""Chains of a layer that are not matrix products, each computed in one pass, forward and backward.

Paper: section 3 ("Model Architecture"); the chains are dropout, residual and normalisation, bias and
activation, the softmax of attention, and the loss of the masked LM (section 3.1).

Letters: L layers, H hidden size, A heads, D = H / A; B batch, S sequence length, N = B S rows.

Op by op such a chain is bound by memory: each op reads and writes all of its values. Compiled, a chain
reads its inputs once; its gradient is computed from these inputs again, so nothing else is kept for the
backward pass. Sums, softmax and normalisation are computed in float32 whatever the dtype.

Where XLA compiles the whole step, as for TPUs, it sees forward and backward at once and would undo this: keep
in float32 what is rounded for the next chain, and what a gradient is to compute again. `stored` forbids it.
"""

import contextvars
import functools
from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.ops import control_flow_util

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


# Whether a chain is being compiled by itself.
_apart = contextvars.ContextVar("apart", default=False)


def in_program() -> bool:
    """Whether XLA compiles more than a chain of what is traced here: on a TPU the whole step."""
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()) and not _apart.get()


def stored(*tensors: tf.Tensor):
    """The same values, which a program of XLA's keeps as they are, in their dtype, and does not look behind."""
    if in_program():
        tensors = _behind_barrier(*tensors)
    return tensors if len(tensors) > 1 else tensors[0]


@tf.custom_gradient
def _behind_barrier(*tensors):
    return xla.optimization_barrier(*tensors), lambda *upstream: upstream


def compiled(function: Callable) -> Callable:
    """Makes one compiled pass of a function of tensors; keyword arguments are Python values.

    Small or unknown shapes are computed op by op, since compiling and launching would cost more than it saves.
    """

    @functools.partial(tf.function, jit_compile=True)
    def in_one_pass(*arguments, **options):
        context = contextvars.copy_context()
        context.run(_apart.set, True)
        return context.run(function, *arguments, **options)

    @functools.wraps(function)
    def call(*arguments, **options):
        large = (tf.nest.flatten(arguments)[0].shape.num_elements() or 0) >= _LARGE
        return (in_one_pass if large and not in_program() else function)(*arguments, **options)

    return call


def chain(differentiable: int) -> Callable:
    """Makes one compiled pass of a function of tensors, and another one of its gradient from the same inputs.

    Args:
      differentiable: how many of the arguments, the first ones, have a gradient.

    Returns:
      A decorator, see `compiled`.
    """

    def decorate(function):
        forward = compiled(function)

        @compiled
        def gradient(arguments, upstream, **options):
            arguments = stored(*arguments)
            inputs = arguments[:differentiable]
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = function(*arguments, **options)
            return stored(*tape.gradient(outputs, inputs, upstream))

        @functools.wraps(function)
        def fused(*arguments, **options):
            @tf.custom_gradient
            def run(*arguments):
                def backward(upstream):
                    gradients = gradient(arguments, upstream, **options)
                    return (*gradients, *[None] * (len(arguments) - differentiable))

                return forward(*arguments, **options), backward

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
    return tf.where(kept(_shape(x), rate, seed, site), x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))


def _shape(x: tf.Tensor) -> tf.TensorShape | tf.Tensor:
    return x.shape if x.shape.is_fully_defined() else tf.shape(x)


def normal(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Layer normalisation of float32 [..., H]; gamma, beta float32 [H]."""
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma + beta


@chain(differentiable=2)
def biased_activation(x, bias, *, name: str):
    """The activation of x + bias: float [..., H], float32 [H]."""
    return tf.cast(ACTIVATIONS[name](tf.cast(x, tf.float32) + bias), x.dtype)


def residual_norm(x, residual, bias, gamma, beta, seed, site, *, rate: float):
    """LayerNorm(residual + dropout(x + bias)): float [..., H] twice, float32 [H]; seed and site as in `kept`.

    Keeps the sum and its statistics, and draws the mask again.
    """

    @tf.custom_gradient
    def run(x, residual, bias, gamma, beta):
        y, total, mean, scale = _residual_norm(x, residual, bias, gamma, beta, seed, site, rate=rate)

        def backward(upstream):
            return _residual_norm_gradient(upstream, total, mean, scale, gamma, seed, site, rate=rate)

        return y, backward

    return run(x, residual, bias, gamma, beta)


@compiled
def _residual_norm(x, residual, bias, gamma, beta, seed, site, *, rate):
    branch = dropped(tf.cast(x, tf.float32) + bias, rate, seed, site)
    total = tf.cast(residual, tf.float32) + branch
    mean = tf.reduce_mean(total, -1, keepdims=True)
    total = stored(tf.cast(total, x.dtype))
    centred = tf.cast(total, tf.float32) - mean
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + LAYER_NORM_EPSILON)
    return tf.cast(centred * scale * gamma + beta, x.dtype), total, mean, scale


@compiled
def _residual_norm_gradient(upstream, total, mean, scale, gamma, seed, site, *, rate):
    y = tf.cast(stored(upstream), tf.float32)
    unit = (tf.cast(total, tf.float32) - mean) * scale
    inner = y * gamma
    of_total = inner - tf.reduce_mean(inner, -1, keepdims=True)
    of_total = scale * (of_total - unit * tf.reduce_mean(inner * unit, -1, keepdims=True))
    of_weights = (tf.reduce_sum(v, range(v.shape.rank - 1)) for v in (dropped(of_total, rate, seed, site), y * unit, y))
    of_total = stored(tf.cast(of_total, total.dtype))
    return dropped(of_total, rate, seed, site), of_total, *of_weights


@chain(differentiable=3)
def norm_dropout(x, gamma, beta, seed, site, *, rate: float):
    """dropout(LayerNorm(x)), float [N, H]; seed and site as in `kept`."""
    return tf.cast(dropped(normal(tf.cast(x, tf.float32), gamma, beta), rate, seed, site), x.dtype)


def attention(projected: Sequence[tf.Tensor], attention_bias, seed, site, *, rate: float):
    """Multi-head attention with dropout of the probabilities.

    Keeps queries, keys, values and the probabilities, whose sign tells what was dropped.

    Args:
      projected: queries, keys and values, side by side or apart: float [B, S, 3, A, D], or [B, Q, 1, A, D] of Q
        positions a row, and the others.
      attention_bias: float32, added to the scores: [B, 1, 1, S] or [B, 1, S, S], with Q rows where there are Q queries.
      seed: int32 [2].
      site: int32 scalar, as in `kept`.
      rate: of the dropout.

    Returns:
      The contexts of all heads, float [B, S, A, D] or [B, Q, A, D].
    """

    @tf.custom_gradient
    def run(*projected):
        query, key, value = (part for x in projected for part in tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4])))
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, S, S]
        logits = _scaled(scores, attention_bias, size=query.shape[-1])
        if not in_program():  # TensorFlow's graph optimizer sees no shape behind a compiled call, and would warn of it
            logits = tf.ensure_shape(logits, scores.shape)
        signed, probabilities = _drop_by_sign(tf.nn.softmax(logits), seed, site, rate=rate, dtype=query.dtype)
        context = tf.matmul(probabilities, value)  # [B, A, S, D]

        def backward(upstream):
            of_context = tf.transpose(upstream, [0, 2, 1, 3])
            of_value = tf.matmul(_kept_by_sign(signed, rate=rate), of_context, transpose_a=True)
            of_probabilities = tf.matmul(of_context, value, transpose_b=True)
            of_scores = _scores_gradient(of_probabilities, signed, of_context, context, rate=rate)
            parts = [tf.matmul(of_scores, key), tf.matmul(of_scores, query, transpose_a=True), of_value]
            return tuple(_merge_heads([parts.pop(0) for _ in range(x.shape[2])]) for x in projected)

        return tf.transpose(context, [0, 2, 1, 3]), backward

    return run(*projected)


def _merge_heads(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Parts of [B, A, S, D] side by side, [B, S, parts, A, D]."""
    return tf.transpose(tf.stack(parts), [1, 3, 0, 2, 4])


@compiled
def _scaled(scores, attention_bias, *, size):
    return tf.cast(scores, tf.float32) * size**-0.5 + attention_bias


@compiled
def _drop_by_sign(probabilities, seed, site, *, rate, dtype):
    """The probabilities, those dropped with a minus, and what is left of them after the dropout."""
    if rate == 0:
        return (tf.cast(probabilities, dtype),) * 2
    mask = kept(_shape(probabilities), rate, seed, site)
    signed = stored(tf.cast(tf.where(mask, probabilities, -probabilities), dtype))
    return signed, tf.cast(tf.nn.relu(tf.cast(signed, tf.float32)) / (1.0 - rate), dtype)


@compiled
def _kept_by_sign(signed, *, rate):
    return tf.cast(tf.nn.relu(tf.cast(signed, tf.float32)) / (1.0 - rate), signed.dtype)


@compiled
def _scores_gradient(of_probabilities, signed, of_context, context, *, rate):
    """The gradient of the scores before they were scaled.

    The softmax's gradient needs each row's sum of probabilities times their gradients. It equals that of contexts
    times theirs, which are shorter.
    """
    wide = tf.cast(signed, tf.float32)
    row = tf.reduce_sum(tf.cast(of_context, tf.float32) * tf.cast(context, tf.float32), -1, keepdims=True)
    through = tf.where(wide > 0, tf.cast(of_probabilities, tf.float32) / (1.0 - rate), 0.0)
    scale = of_context.shape[-1] ** -0.5
    return stored(tf.cast(tf.abs(wide) * (through - row) * scale, signed.dtype))


def cross_entropy(x, bias, labels):
    """The loss of each row's label under softmax(x + bias), and the likeliest label.

    Keeps x and a number a row.

    Args:
      x: float [R, V].
      bias: float32 [V].
      labels: int32 [R].

    Returns:
      The negative log-likelihoods, float32 [R], and the likeliest labels, int32 [R].
    """

    @tf.custom_gradient
    def run(x, bias):
        logits = _biased(x, bias)
        top = tf.reduce_max(logits, -1, keepdims=True)
        normalizer = top + tf.math.log(_sum_of_exponentials(logits, top))  # [R, 1]
        nll = normalizer[:, 0] - tf.gather(logits, labels, batch_dims=1)

        def backward(of_nll, of_likeliest):
            return _cross_entropy_gradient(x, bias, normalizer, labels, of_nll)

        return (nll, tf.argmax(logits, -1, tf.int32)), backward

    return run(x, bias)


@compiled
def _biased(x, bias):
    return tf.cast(x, tf.float32) + bias


@compiled
def _sum_of_exponentials(logits, top):
    return tf.reduce_sum(tf.exp(logits - top), -1, keepdims=True)


@compiled
def _cross_entropy_gradient(x, bias, normalizer, labels, of_nll):
    probabilities = tf.exp(tf.cast(x, tf.float32) + bias - normalizer)
    right = tf.range(x.shape[1])[tf.newaxis, :] == labels[:, tf.newaxis]
    of_logits = (probabilities - tf.cast(right, tf.float32)) * of_nll[:, tf.newaxis]
    return tf.cast(of_logits, x.dtype), tf.reduce_sum(of_logits, 0)
