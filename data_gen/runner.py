"""What does the work: the same functions of the same tasks, here (`run_local`) or on a cluster (`run_spark`)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol


class Runner(Protocol):
    """Runs functions of tasks; a context manager.

    Attributes:
      num_workers: how many tasks are at work at the same time, about.
    """

    num_workers: int

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task, in any order.

        Functions and tasks must be picklable. A function may be called more than once for the same task, where
        a cluster lost a worker or thinks it slow: it must write the same each time, under its name when whole.
        When an error comes out of here, no task is at work any more.
        """


def use_one_core() -> None:
    """Keeps TensorFlow in this process to one core, and off any GPU: there is a process for each core."""
    import tensorflow as tf

    try:
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError:
        pass  # TensorFlow runs already: in a process that does other work too
