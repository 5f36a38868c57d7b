"""The interface of runners, which apply functions to tasks on this machine (`run_local`) or a cluster (`run_spark`)."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from bert_tf.core.cores import usable_cores
from bert_tf.core.errors import InputError

_Settings = TypeVar("_Settings")


class Runner(Protocol):
    """A context manager that applies functions to tasks in parallel."""

    num_workers: int  # approximate number of tasks that run at the same time

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task, in any order. Functions and tasks must be picklable. A cluster that
        has lost a worker, or considers a worker slow, may run a task more than once. A function must therefore write
        the same bytes each time, and write files atomically. If this method raises an error, no task is still running.
        """


@contextlib.contextmanager
def started(
    settings: _Settings, *preload: str, num_gpus: int = 0, most_tasks: int | None = None
) -> Iterator[tuple[_Settings, Runner]]:
    """Yields the workers' settings and a started runner. Call this function before TensorFlow starts threads.
    `settings`: settings with the attributes `runner`, `num_workers` and `spark_master`, and the method
      `with_absolute_paths`.
    `num_gpus`: 1 to use the first GPU of this machine; 0 to use the CPU.
    `most_tasks`: number of tasks of the job, if known. A single task runs in this process and uses all cores."""
    if settings.runner == "spark":
        from bert_tf.jobs.run_spark import SparkRunner

        settings = settings.with_absolute_paths()  # the workers have other working directories
        runner = SparkRunner(settings.spark_master, settings.num_workers)
    else:
        from bert_tf.jobs.run_local import LocalRunner

        if num_gpus:
            use_gpu()
        is_alone = bool(num_gpus) or most_tasks == 1
        workers = 1 if is_alone else min(settings.num_workers or usable_cores(), most_tasks or sys.maxsize)
        runner = LocalRunner(workers, preload=preload, own_devices=is_alone)
    with runner:
        yield settings, runner


def use_gpu() -> None:
    """Makes TensorFlow in this process use only the first GPU."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise InputError("--num_gpus=1: TensorFlow finds no GPU; remove the flag to use the CPU")
    # If TensorFlow is already initialized (the process does other work too), its devices cannot be changed.
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices(gpus[:1], "GPU")
        tf.config.experimental.set_memory_growth(gpus[0], True)
