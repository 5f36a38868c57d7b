"""A runner for a GPU: one task at a time in this process, with all of TensorFlow's devices."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bert_tf.core.errors import InputError


class HereRunner:
    """A context manager that applies functions to tasks in this process.

    Attributes:
      num_workers: 1.

    Raises:
      InputError: there is no GPU.
    """

    num_workers = 1

    def __enter__(self) -> "HereRunner":
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        if not gpus:
            raise InputError("--num_gpus=1: TensorFlow finds no GPU; drop the flag to use the processor")
        with contextlib.suppress(RuntimeError):  # TensorFlow is already initialized, as in a process with other work
            tf.config.set_visible_devices(gpus[:1], "GPU")
            tf.config.experimental.set_memory_growth(gpus[0], True)
        return self

    def __exit__(self, *exception) -> None:
        pass

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task, in order."""
        yield from map(function, tasks)
