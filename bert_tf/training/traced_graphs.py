"""Releases the graphs of a training run, for a process that trains several models one after another."""

import contextlib
import gc
from collections.abc import Iterator

from tensorflow.python.framework import ops


@contextlib.contextmanager
def released() -> Iterator[None]:
    """Releases the graphs that were traced in a block, and the weights that they read, at the end of the block.

    TensorFlow keeps the gradient of each traced call of a `tf.custom_gradient` in a registry forever. The gradient
    holds the graph, and the graph holds the handles of all weights and moments. TensorFlow uses an entry only while it
    traces a gradient, so the entries are not needed after the block.
    """
    gradients = ops.gradient_registry
    before = set(gradients.list())
    try:
        yield
    finally:
        for name in set(gradients.list()) - before:
            if name.startswith("CustomGradient-"):
                del gradients._registry[name]
        # Graphs and weights form reference cycles.
        gc.collect()
