"""Releases the graphs of a training, for a process that trains several models one after another."""

import contextlib
import gc
from collections.abc import Iterator

from tensorflow.python.framework import ops


@contextlib.contextmanager
def released() -> Iterator[None]:
    """Releases, at the end of a block, the graphs that were traced in it, and with them the weights that they read.

    TensorFlow registers the gradient of each traced call of a `tf.custom_gradient` for ever. It holds the graph, which
    holds the handles of all weights and moments. The entry is only looked up while a gradient is traced, so nothing
    needs it once the block's models are gone.
    """
    gradients = ops.gradient_registry
    before = set(gradients.list())
    try:
        yield
    finally:
        for name in set(gradients.list()) - before:
            if name.startswith("CustomGradient-"):
                del gradients._registry[name]
        # graphs and weights form reference cycles
        gc.collect()
