"""Fused operations for training: the computations between matrix products, with custom gradients.

The encoder uses `FusedOperations` instead of `PlainOperations` in training. This file and `compilation.py` only make
the encoder faster; the encoder is complete without them.

Paper: section 3 ("Model Architecture"), section 3.1 for the loss of the masked LM.

Letters: Q positions that are read, R rows of logits.

Each function gives the same result as the plain operations in `bert_tf.encoder`, with the same dropout masks. Separate
operations are bound by memory bandwidth, because each reads and writes all values. A compiled function reads its inputs
once. It stores few values for the backward pass, which computes the other values again. Sums, softmax and layer
normalization are always computed in float32.

On a CPU, compiled functions take matrices: XLA's sums over the rows of a matrix are several times as fast as its sums
over the two axes B and S.

`grad_x` is the gradient of the loss with respect to x. Every floating-point input gets a gradient. A new input must be
an argument of the function: if a custom gradient captures a tensor instead, TensorFlow treats the tensor as a constant
and never trains it.
"""

import itertools
import math
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.modeling.compilation import (
    compiled,
    compiled_with_gradient,
    inside_xla,
    keeps_axes,
    optimization_barrier,
)
from bert_tf.modeling.dense import LayerNorm, Linear, activation, in_rows_of, layer_norm, rows
from bert_tf.modeling.dropout import dropout, dropout_mask, static_or_dynamic_shape
from bert_tf.modeling.row_layout import PaddedRows


class FusedOperations(PaddedRows):
    """Fused versions of the methods of `bert_tf.encoder.PlainOperations`."""

    def norm_dropout(self, x, norm: LayerNorm, rate: float, seed, site: int):
        """Computes dropout(LayerNorm(x)), float [..., H]."""
        gamma, beta = tf.convert_to_tensor(norm.gamma), tf.convert_to_tensor(norm.beta)
        rate, seed = _rate_and_seed(rate, seed)
        y = norm_dropout(_matrix(x), gamma, beta, seed, tf.constant(site), rate=rate, epsilon=norm.epsilon)
        return in_rows_of(x, y)

    def attention(self, layer, x, query_input, attention_bias, rate: float, seed, site: int):
        """Computes the context vectors of all heads, float [B, S, A, D] or [B, Q, A, D]."""
        # TensorFlow is faster with one large product. Under XLA, a TPU would take longer to join weights and gradients,
        # and a GPU would take longer to split the product.
        if inside_xla():
            groups = [(query_input, [layer.query]), (x, [layer.key]), (x, [layer.value])]
        elif query_input is x:
            groups = [(x, [layer.query, layer.key, layer.value])]
        else:
            groups = [(query_input, [layer.query]), (x, [layer.key, layer.value])]
        projected = [_project(*group, layer.num_heads) for group in groups]
        rate, seed = _rate_and_seed(rate, seed)
        return attention(projected, attention_bias, seed, tf.constant(site), rate=rate)

    def dense_activation(self, x, dense: Linear, hidden_act: str):
        """Computes activation(x W + b)."""
        product = _product_of(dense, x)
        y = biased_activation(_matrix(product), tf.convert_to_tensor(dense.bias), name=hidden_act)
        return in_rows_of(product, y)

    def residual_norm(self, x, residual, dense: Linear, norm: LayerNorm, rate: float, seed, site: int):
        """Computes LayerNorm(residual + dropout(x W + b)); `x` has the shape [B, S, A, D] (contexts) or [B, S, 4H]."""
        weights = (tf.convert_to_tensor(weight) for weight in (dense.bias, norm.gamma, norm.beta))
        rate, seed = _rate_and_seed(rate, seed)
        x = _matrix(_product_of(dense, x))
        y = residual_norm(x, _matrix(residual), *weights, seed, tf.constant(site), rate=rate, epsilon=norm.epsilon)
        return in_rows_of(residual, y)


def _rate_and_seed(rate: float, seed: tf.Tensor | None) -> tuple[float, tf.Tensor]:
    """Returns the rate and the seed for a function that needs a seed tensor; for the seed None, the rate is 0."""
    return (0.0, tf.zeros([2], tf.int32)) if seed is None else (rate, seed)


def _matrix(x: tf.Tensor) -> tf.Tensor:
    """Reshapes [B, S, H] to [B S, H], except on a TPU; see `keeps_axes`."""
    return x if keeps_axes() else rows(x)


def _product_of(dense: Linear, x: tf.Tensor) -> tf.Tensor:
    """Computes x W, float [B, S, outputs]; x is float [B, S, ...], and its last axes are the inputs of `dense`."""
    return _product(x, tf.reshape(dense.kernel, [*x.shape[2:], dense.kernel.shape[1]]))


def _project(x: tf.Tensor, layers: Sequence[Linear], num_heads: int) -> tf.Tensor:
    """Applies several affine maps to float [B, S, H]; returns float [B, S, layers, A, D]."""
    parts = [len(layers), num_heads, x.shape[-1] // num_heads]
    kernel = tf.concat([layer.kernel for layer in layers], axis=1)
    bias = tf.concat([layer.bias for layer in layers], axis=0)
    return _product(x, tf.reshape(kernel, [x.shape[-1], *parts])) + tf.cast(tf.reshape(bias, parts), x.dtype)


def _product(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Contracts all axes of x after the second axis with the first axes of a kernel."""
    axes = x.shape.rank - 2
    if keeps_axes():  # without a reshape, XLA can choose the layout that fits the next operation
        inputs, outputs = "hij"[:axes], "xyz"[: kernel.shape.rank - axes]
        return tf.einsum(f"bs{inputs},{inputs}{outputs}->bs{outputs}", x, kernel)
    flat = math.prod(x.shape[2:])
    if x.shape[:2].is_fully_defined():  # fewer operations to trace
        shape = [*x.shape[:2], *kernel.shape[axes:]]
    else:
        shape = tf.concat([tf.shape(x)[:2], kernel.shape[axes:]], 0)
    return tf.reshape(tf.matmul(tf.reshape(x, [-1, flat]), tf.reshape(kernel, [flat, -1])), shape)


@compiled_with_gradient
def biased_activation(x, bias, *, name: str):
    """Adds a bias, float32 [H], to float [..., H], and applies the activation function `name`."""
    return tf.cast(activation(name)(_with_gradient_in(x.dtype, tf.cast(x, tf.float32) + bias)), x.dtype)


def _with_gradient_in(dtype: tf.DType, x: tf.Tensor) -> tf.Tensor:
    """Returns x; its gradient is stored in a dtype. XLA would store it in float32, because two operations read it."""

    def backward(upstream):
        return tf.cast(optimization_barrier(tf.cast(upstream, dtype)), x.dtype)

    return tf.custom_gradient(lambda x: (tf.identity(x), backward))(x)


def residual_norm(x, residual, bias, gamma, beta, seed, site, *, rate: float, epsilon: float):
    """Computes LayerNorm(residual + dropout(x + bias)). The forward pass stores the sum and its statistics; the
    backward pass computes the mask again.
    `x`: float [..., H].
    `residual`: float [..., H].
    `bias`: float32 [H], the bias of the affine map that computed x.
    `gamma`: float32 [H].
    `beta`: float32 [H].
    `seed`: int32 [2].
    `site`: int32 []; see `dropout_mask`.
    `epsilon`: see `layer_norm`.
    Returns float [..., H]."""

    @tf.custom_gradient
    def run(x, residual, bias, gamma, beta):
        y, total, mean, scale = _residual_norm(x, residual, bias, gamma, beta, seed, site, rate=rate, epsilon=epsilon)

        def backward(upstream):
            return _residual_norm_gradient(upstream, total, mean, scale, gamma, seed, site, rate=rate)

        return y, backward

    return run(x, residual, bias, gamma, beta)


@compiled
def _residual_norm(x, residual, bias, gamma, beta, seed, site, *, rate, epsilon):
    branch = dropout(tf.cast(x, tf.float32) + bias, rate, seed, site)
    total = tf.cast(residual, tf.float32) + branch
    mean = tf.reduce_mean(total, -1, keepdims=True)
    total = optimization_barrier(tf.cast(total, x.dtype))
    centered = tf.cast(total, tf.float32) - mean
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), -1, keepdims=True) + epsilon)
    return tf.cast(centered * scale * gamma + beta, x.dtype), total, mean, scale


@compiled
def _residual_norm_gradient(upstream, total, mean, scale, gamma, seed, site, *, rate):
    y = tf.cast(optimization_barrier(upstream), tf.float32)
    unit = (tf.cast(total, tf.float32) - mean) * scale
    inner = y * gamma
    grad_total = inner - tf.reduce_mean(inner, -1, keepdims=True)
    grad_total = scale * (grad_total - unit * tf.reduce_mean(inner * unit, -1, keepdims=True))
    grad_weights = (
        tf.reduce_sum(v, range(v.shape.rank - 1)) for v in (dropout(grad_total, rate, seed, site), y * unit, y)
    )
    grad_total = optimization_barrier(tf.cast(grad_total, total.dtype))
    return dropout(grad_total, rate, seed, site), grad_total, *grad_weights


@compiled_with_gradient
def norm_dropout(x, gamma, beta, seed, site, *, rate: float, epsilon: float):
    """Computes dropout(LayerNorm(x)), float [..., H]; see `residual_norm`."""
    normalized = layer_norm(tf.cast(x, tf.float32), gamma, beta, epsilon)
    return tf.cast(dropout(normalized, rate, seed, site), x.dtype)


def attention(projected: Sequence[tf.Tensor], attention_bias, seed, site, *, rate: float):
    """Computes multi-head attention with dropout on the probabilities. The forward pass stores queries, keys, values
    and probabilities. A negative sign marks a dropped probability.
    `projected`: queries, keys and values, either in one tensor, float [B, S, 3, A, D], or in several tensors; queries
      of only Q positions per row are float [B, Q, 1, A, D].
    `attention_bias`: float32, added to the scores; any shape that broadcasts to [B, A, S, S], or with Q queries to [B,
      A, Q, S].
    `seed`: int32 [2].
    `site`: int32 []; see `dropout_mask`.
    Returns the context vectors of all heads, float [B, S, A, D] or [B, Q, A, D]."""

    @tf.custom_gradient
    def run(attention_bias, *projected):
        query, key, value = (part for x in projected for part in tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4])))
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, S, S]
        logits = _scaled(scores, attention_bias, size=query.shape[-1])
        if not inside_xla():  # otherwise TensorFlow's graph optimizer warns of a compiled call's unknown shape
            logits = tf.ensure_shape(logits, scores.shape)
        signed, probabilities = _drop_by_sign(tf.nn.softmax(logits), seed, site, rate=rate, dtype=query.dtype)
        context = tf.matmul(probabilities, value)  # [B, A, S, D]

        def backward(upstream):
            grad_context = tf.transpose(upstream, [0, 2, 1, 3])
            grad_value = tf.matmul(_kept_by_sign(signed, rate=rate), grad_context, transpose_a=True)
            grad_probabilities = tf.matmul(grad_context, value, transpose_b=True)
            grad_scores = _scores_gradient(grad_probabilities, signed, grad_context, context, rate=rate)
            parts = iter((tf.matmul(grad_scores, key), tf.matmul(grad_scores, query, transpose_a=True), grad_value))
            # TensorFlow prunes this sum from the graph if nothing uses it.
            grad_bias = _sum_to_shape(grad_scores, attention_bias) * query.shape[-1] ** 0.5  # it is added after scaling
            return grad_bias, *(_merge_heads(list(itertools.islice(parts, x.shape[2]))) for x in projected)

        return tf.transpose(context, [0, 2, 1, 3]), backward

    return run(attention_bias, *projected)


def _sum_to_shape(gradient: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Sums a gradient over the axes along which x was broadcast; returns float32 of the shape of x."""
    _, axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(gradient), s1=tf.shape(x))
    return tf.reshape(tf.reduce_sum(tf.cast(gradient, tf.float32), axes), tf.shape(x))


def _merge_heads(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Stacks parts [B, A, S, D] to [B, S, parts, A, D]."""
    return tf.transpose(tf.stack(parts), [1, 3, 0, 2, 4])


@compiled
def _scaled(scores, attention_bias, *, size):
    return tf.cast(scores, tf.float32) * size**-0.5 + attention_bias


@compiled
def _drop_by_sign(probabilities, seed, site, *, rate, dtype):
    """Returns the probabilities with a negative sign on the dropped ones, and the probabilities after dropout."""
    if rate == 0:
        return (tf.cast(probabilities, dtype),) * 2
    mask = dropout_mask(static_or_dynamic_shape(probabilities), rate, seed, site)
    if keeps_axes():
        signed = optimization_barrier(tf.cast(tf.where(mask, probabilities, -probabilities), dtype))
    else:
        probabilities = optimization_barrier(tf.cast(probabilities, dtype))
        signed = tf.where(mask, probabilities, -probabilities)
    return signed, tf.cast(tf.nn.relu(tf.cast(signed, tf.float32)) / (1.0 - rate), dtype)


@compiled
def _kept_by_sign(signed, *, rate):
    return tf.cast(tf.nn.relu(tf.cast(signed, tf.float32)) / (1.0 - rate), signed.dtype)


@compiled
def _scores_gradient(grad_probabilities, signed, grad_context, context, *, rate):
    """Computes the gradient of the unscaled scores. The gradient of a softmax needs, for each row, the sum of the
    probabilities times their gradients. The sum of the contexts times their gradients is equal, and it has fewer terms.
    """
    wide = tf.cast(signed, tf.float32)
    row = tf.reduce_sum(tf.cast(grad_context, tf.float32) * tf.cast(context, tf.float32), -1, keepdims=True)
    through = tf.where(wide > 0, tf.cast(grad_probabilities, tf.float32) / (1.0 - rate), 0.0)
    scale = grad_context.shape[-1] ** -0.5
    return optimization_barrier(tf.cast(tf.abs(wide) * (through - row) * scale, signed.dtype))


def cross_entropy(x, bias, labels):
    """Computes the loss of each row's label under softmax(x + bias), and the most probable label. The forward pass
    stores x and one number per row.
    `x`: float [R, V].
    `bias`: float32 [V].
    `labels`: int32 [R].
    Returns:
    `losses`: float32 [R], the negative log-likelihood of each row's label.
    `likeliest`: int32 [R], the most probable label of each row."""

    @tf.custom_gradient
    def run(x, bias):
        logits = _biased(x, bias)
        top = tf.reduce_max(logits, -1, keepdims=True)
        normalizer = top + tf.math.log(_sum_of_exponentials(logits, top))  # [R, 1]
        nll = normalizer[:, 0] - tf.gather(logits, labels, batch_dims=1)

        def backward(grad_nll, grad_likeliest):
            return _cross_entropy_gradient(x, bias, normalizer, labels, grad_nll)

        return (nll, tf.argmax(logits, -1, tf.int32)), backward

    return run(x, bias)


@compiled
def _biased(x, bias):
    return tf.cast(x, tf.float32) + bias


@compiled
def _sum_of_exponentials(logits, top):
    return tf.reduce_sum(tf.exp(logits - top), -1, keepdims=True)


@compiled
def _cross_entropy_gradient(x, bias, normalizer, labels, grad_nll):
    probabilities = tf.exp(tf.cast(x, tf.float32) + bias - normalizer)
    right = tf.range(x.shape[1])[tf.newaxis, :] == labels[:, tf.newaxis]
    grad_logits = (probabilities - tf.cast(right, tf.float32)) * grad_nll[:, tf.newaxis]
    return tf.cast(grad_logits, x.dtype), tf.reduce_sum(grad_logits, 0)
