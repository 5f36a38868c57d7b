"""Work on a Spark cluster: the same functions of the same tasks, on its executors.

Executors need this package (installed, or with `--py-files`) and a file system that the driver and all of
them share: what a task writes is a file. A task that is run again, after a lost executor or in speculation,
writes the same bytes under the same name.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfrecords.errors import InputError


class SparkRunner:
    """Runs functions of tasks on PySpark; a context manager.

    Args:
      master: URL of the cluster's master; empty for what spark-submit was given.
      num_workers: tasks at work at the same time; None for what the cluster says.
    """

    def __init__(self, master: str = "", num_workers: int | None = None):
        self._master = master
        self.num_workers = num_workers or 1
        self._asked = num_workers
        self._session = None

    def __enter__(self) -> "SparkRunner":
        try:
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession
        except ImportError as error:
            raise InputError("--runner=spark needs PySpark: pip install 'bert_tf[spark]', and Java 17") from error
        builder = SparkSession.builder.appName("create_pretraining_data")
        if self._master:
            builder = builder.master(self._master)
        if self._asked:
            builder = builder.config("spark.cores.max", self._asked)
        try:
            self._session = builder.getOrCreate()
        except (PySparkException, OSError, RuntimeError) as error:
            raise InputError(
                f"--spark_master={self._master}: Spark does not start ({error}); is Java there?"
            ) from error
        self.num_workers = self._asked or self._session.sparkContext.defaultParallelism
        return self

    def __exit__(self, *exception) -> None:
        if self._session is not None:
            self._session.stop()

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task.

        Raises:
          InputError: what `function` raised on an executor.
        """
        tasks = list(tasks)
        if not tasks:
            return
        # a partition a task: Spark hands them out one by one, and repeats only what was lost
        results = self._session.sparkContext.parallelize(tasks, len(tasks)).map(_Guarded(function))
        for result, message in results.collect():
            if message is not None:
                raise InputError(message)
            yield result


class _Guarded:
    """Brings bad input home as a value: as an exception Spark would try the task four times, and wrap it in Java's."""

    def __init__(self, function: Callable[[Any], Any]):
        self._function = function

    def __call__(self, task: Any) -> tuple[Any, str | None]:
        try:
            return self._function(task), None
        except InputError as error:
            return None, str(error)
