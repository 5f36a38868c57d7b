"""Releases the graphs of a training run, for a process that trains several models one after another."""

import contextlib
import gc
from collections.abc import Iterator

from tensorflow.python.framework import ops


@contextlib.contextmanager
def released() -> Iterator[None]:
    """At the end of a block, releases the graphs that the block traced, and the weights that these graphs read.

    TensorFlow keeps the gradient of each traced call of a `tf.custom_gradient` in a registry forever. The gradient
    refers to the graph, and the graph refers to all weights and moments. TensorFlow uses an entry of the registry only
    while it traces a gradient, so the entries are not needed after the block.
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
