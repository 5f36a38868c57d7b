"""Operations for inference that compute each layer in two halves, so that one request can use two cores.

Exported encoders use `HalvedOperations` instead of `PlainOperations`. The encoder is complete without this file.

Paper: section 3 ("Model Architecture"). The halves of the matrices: M. Shoeybi et al., "Megatron-LM: Training
Multi-Billion Parameter Language Models Using Model Parallelism", 2019, section 3.

Letters: Q positions that are read, N tokens of all rows.

A half of the attention has half of the heads. A half of the feed-forward network has half of the I inner values. Both
halves read the same input, and the layer adds their outputs. So TensorFlow can compute the two halves at the same time,
each with one thread, and the threads wait for each other only twice per layer. If two threads share each operation
instead, they wait for each other after each operation. For one sentence, this takes longer than a single thread needs.

Each half has its own matrices, because copying a part of a matrix takes as long as multiplying it. Queries, keys and
values are one product, and the matrix of the queries contains the factor 1 / sqrt(D). Vectors are constants in the
graph, because reading a variable takes as long as adding a vector to the values of a sentence. Matrices are variables:
oneDNN copies a constant matrix into a layout for a certain number of rows, and copies again if this number changes.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.modeling.dense import LayerNorm, Linear, activation, in_rows_of, layer_norm, rows
from bert_tf.modeling.row_layout import JoinedRows


@dataclasses.dataclass(frozen=True)
class _Affine:
    """The map x W + b of one half; the kernel [inputs, outputs] and the bias [outputs] are in the compute dtype."""

    kernel: tf.Variable
    bias: np.ndarray

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.bias_add(tf.matmul(rows(x), self.kernel), self.bias)  # [N, outputs]


@dataclasses.dataclass(frozen=True)
class _Heads:
    """The heads of one half."""

    query: _Affine | None  # the map to queries; None if `others` includes it
    others: _Affine  # the map to keys and values, or to queries, keys and values
    count: int  # number of heads


class HalvedOperations:
    """The weights of the halves.
      encoder: a `BertEncoder` with its final weights. The constructor moves the weights of the blocks and norms into
        the halves. From then on, the encoder can only infer, and only with these operations.
    The keys of the dicts are the `id`s of the layers that had the weights.
    `norms`: gamma and beta of each layer normalization, float32 [H], and its epsilon.
    `inner`: the halves of each map from H to I values.
    `outer`: the matrices of the halves, and the bias, of each map from heads or from I values to H values."""

    def __init__(self, encoder):
        self.variables: list[tf.Variable] = []
        norms = [layer for layer in encoder.submodules if isinstance(layer, LayerNorm)]
        self.norms = {
            id(norm): [*(weight.numpy() for weight in _take(norm, "gamma", "beta")), norm.epsilon] for norm in norms
        }
        self.heads: dict[int, list[_Heads]] = {}
        self.inner: dict[int, list[_Affine]] = {}
        self.outer: dict[int, tuple[list[tf.Variable], np.ndarray]] = {}
        for block in encoder.blocks:
            attention, inner = block.attention, block.intermediate
            counts, sizes = _halves(attention.num_heads), _halves(inner.kernel.shape[1])
            # Only the last layer may compute the queries of fewer positions.
            self.heads[id(attention)] = self._heads_of(attention, counts, with_queries=block is not encoder.blocks[-1])
            widths = [count * attention.head_size for count in counts]
            self.outer[id(attention.output_dense)] = self._rows_of(attention.output_dense, widths)
            self.inner[id(inner)] = [self._affine([half], inner.compute_dtype) for half in _columns(inner, sizes)]
            self.outer[id(block.output_dense)] = self._rows_of(block.output_dense, sizes)

    def of_rows(self, input_mask: tf.Tensor) -> "_HalvedRows":
        """See `PaddedRows`."""
        return _HalvedRows(self, input_mask)

    def _heads_of(self, layer, counts: Sequence[int], with_queries: bool) -> list[_Heads]:
        """Moves the weights of queries, keys and values into the halves of an attention."""
        widths = [count * layer.head_size for count in counts]
        columns = (
            _columns(layer.query, widths, layer.head_size**-0.5),
            *(_columns(d, widths) for d in (layer.key, layer.value)),
        )
        heads = []
        for count, query, *others in zip(counts, *columns, strict=True):
            separate = None if with_queries else self._affine([query], layer.compute_dtype)
            joined = self._affine([query, *others] if with_queries else others, layer.compute_dtype)
            heads.append(_Heads(separate, joined, count))
        return heads

    def _rows_of(self, dense: Linear, sizes: Sequence[int]) -> tuple[list[tf.Variable], np.ndarray]:
        """Moves the weights of a layer; returns the rows of the matrix for each half, and the bias."""
        kernel, bias = _take(dense, "kernel", "bias")
        kernels = [self._variable(part, dense.compute_dtype) for part in tf.split(kernel, sizes, axis=0)]
        return kernels, tf.cast(bias, dense.compute_dtype).numpy()

    def _affine(self, maps: Sequence[Sequence[tf.Tensor]], dtype: str) -> _Affine:
        """Joins maps with the same input; each map has a kernel and a bias."""
        kernel, bias = (tf.concat(parts, axis=-1) for parts in zip(*maps, strict=True))
        return _Affine(self._variable(kernel, dtype), tf.cast(bias, dtype).numpy())

    def _variable(self, value: tf.Tensor, dtype: str) -> tf.Variable:
        self.variables.append(tf.Variable(tf.cast(value, dtype), trainable=False))
        return self.variables[-1]


class _HalvedRows(JoinedRows):
    """The methods of `bert_tf.encoder.PlainOperations` for a batch, without dropout. The contexts of an attention, and
    the inner values of a feed-forward network, are lists with a matrix per half."""

    def __init__(self, weights: HalvedOperations, input_mask: tf.Tensor):
        super().__init__(input_mask)
        self._weights = weights

    def norm_dropout(self, x, norm: LayerNorm, rate: float, seed, site: int):
        del rate, seed, site
        return self._normalized(tf.cast(x, tf.float32), norm, x.dtype)

    def attention(self, layer, x, query_input, attention_bias, rate: float, seed, site: int):
        """Computes the context vectors of the heads of each half, float [N, A/2 D] or [B Q, A/2 D]."""
        del rate, seed, site
        queries, halves = None if query_input is x else query_input, self._weights.heads[id(layer)]
        biases = [attention_bias] * len(halves)
        if attention_bias.shape[1] != 1:  # each head has its own bias
            biases = tf.split(attention_bias, [half.count for half in halves], axis=1)
        return [self._contexts(half, x, queries, bias) for half, bias in zip(halves, biases, strict=True)]

    def dense_activation(self, x, dense: Linear, hidden_act: str):
        """Computes activation(x W + b) for the inner values of each half, float [N, I/2]."""
        return [activation(hidden_act)(half(x)) for half in self._weights.inner[id(dense)]]

    def residual_norm(self, x, residual, dense: Linear, norm: LayerNorm, rate: float, seed, site: int):
        """Computes LayerNorm(residual + x W + b), with the shape of `residual`; `x` has a matrix per half."""
        del rate, seed, site
        kernels, bias = self._weights.outer[id(dense)]
        products = [tf.matmul(half, kernel) for half, kernel in zip(x, kernels, strict=True)]
        # TensorFlow computes the first product, the bias and the residual in one operation.
        products[0] = tf.nn.bias_add(products[0], bias) + rows(residual)
        first, *others = (tf.cast(product, tf.float32) for product in products)
        return in_rows_of(residual, self._normalized(sum(others, first), norm, residual.dtype))

    def _contexts(self, half: _Heads, x, queries, attention_bias) -> tf.Tensor:
        """Computes the context vectors of one half."""
        maps = 2 if half.query else 3
        *query, key, value = self.heads(half.others(x), maps, half.count)
        if queries is not None:
            query = [_few_heads(in_rows_of(queries, half.query(queries)), half.count)]
        elif half.query:
            query = self.heads(half.query(x), 1, half.count)
        scores = tf.matmul(query[0], key, transpose_b=True)  # [B, A/2, S, S]
        # The softmax is always computed in float32.
        probabilities = tf.nn.softmax(tf.cast(scores, tf.float32) + attention_bias)
        context = tf.matmul(tf.cast(probabilities, value.dtype), value)
        if queries is None:
            return self.tokens(context)
        return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, half.count * context.shape[3]])

    def _normalized(self, x, norm: LayerNorm, dtype: tf.DType) -> tf.Tensor:
        return tf.cast(layer_norm(x, *self._weights.norms[id(norm)]), dtype)


def _halves(total: int) -> list[int]:
    """Returns the sizes of the halves; there is one half if the total is 1."""
    return [size for size in (total - total // 2, total // 2) if size]


def _take(layer: keras.layers.Layer, *names: str) -> list[tf.Tensor]:
    """Removes weights, float32, from a layer, and returns their values."""
    values = [tf.convert_to_tensor(getattr(layer, name)) for name in names]
    for name in names:
        delattr(layer, name)
    return values


def _columns(dense: Linear, sizes: Sequence[int], scale: float = 1.0) -> list[tuple[tf.Tensor, ...]]:
    """Moves the weights of a layer; returns the columns of the matrix and the bias for each half, times a factor."""
    weights = [tf.split(weight * scale, sizes, axis=-1) for weight in _take(dense, "kernel", "bias")]
    return list(zip(*weights, strict=True))


def _few_heads(x: tf.Tensor, count: int) -> tf.Tensor:
    """Splits float [B, Q, A/2 D] into heads, float [B, A/2, Q, D]."""
    batch, length = tf.unstack(tf.shape(x)[:2])
    return tf.transpose(tf.reshape(x, [batch, length, count, x.shape[2] // count]), [0, 2, 1, 3])
