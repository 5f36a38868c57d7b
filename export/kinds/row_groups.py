"""Runs a model on many rows in parts, so that memory stays bounded."""

from collections.abc import Callable, Mapping

import tensorflow as tf

# Number of tokens per part. Larger parts are not faster, but take more memory: with BERT-Base, the activations of 8,192
# tokens take 0.3 GB.
_TOKENS = 8192


def compute(
    model: Callable[[Mapping[str, tf.Tensor]], tf.Tensor], inputs: Mapping[str, tf.Tensor], tokens: int = _TOKENS
) -> tf.Tensor:
    """Computes a model's output for rows.
    `model`: a function that maps inputs to a float32 tensor. The first axis of the tensor runs over the rows.
    `inputs`: int32 inputs of the model. The first axis of each input runs over the rows; `input_ids` is [N, S].
    `tokens`: number of tokens per part. A part has an even number of rows, so that the two rows of a pair of texts in
      both orders stay together."""
    rows, length = tf.unstack(tf.shape(inputs["input_ids"]))
    size = 2 * tf.maximum(tokens // length // 2, 1)
    parts = tf.maximum((rows + size - 1) // size, 1)  # without rows, there is one empty part

    shapes = []

    def step(number: tf.Tensor, outputs: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        taken = slice(number * size, (number + 1) * size)
        output = model({name: values[taken] for name, values in inputs.items()})
        shapes.append(output.shape[1:])
        return number + 1, outputs.write(number, output)

    outputs = tf.TensorArray(tf.float32, size=parts, infer_shape=False)
    # The parts run one after another, because the memory of parts that run at the same time would not be bounded.
    _, outputs = tf.while_loop(lambda number, _: number < parts, step, (0, outputs), parallel_iterations=1)
    return tf.ensure_shape(outputs.concat(), [None, *shapes[0]])
