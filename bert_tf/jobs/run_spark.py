"""A runner for a Spark cluster: executors apply the functions to the tasks.

Executors need this package (see docs/how_to/spark.md). They also need a file system that they share with the driver,
because tasks write files. Spark may run a task again if an executor was lost or the task seems slow. The task then
writes the same bytes under the same name.
"""

import contextlib
import os
import pathlib
import re
import shutil
import sys
import sysconfig
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.jobs.run_local import use_one_core

_SECONDS_BETWEEN_LOOKS = 0.5


class SparkRunner:
    """A context manager that applies functions to tasks through PySpark.
    `master`: URL of the cluster's master; empty for the master given to spark-submit.
    `num_workers`: maximum number of concurrent tasks on a standalone cluster; None uses all cores of the cluster."""

    def __init__(self, master: str = "", num_workers: int | None = None):
        self._master, self._asked = master, num_workers
        self._log, self._context = "", None

    @property
    def num_workers(self) -> int:
        """Number of concurrent tasks on the executors that have registered so far."""
        return self._asked or self._context.defaultParallelism

    def __enter__(self) -> "SparkRunner":
        _require_spark()
        handle, self._log = tempfile.mkstemp(prefix="spark-", suffix=".log")
        with os.fdopen(handle, "wb") as log:
            try:
                self._context = _start(self._master, self._asked, log)
            except Exception as error:
                raise InputError(
                    f"--spark_master={self._master}: Spark does not start: {_reason(error)} (Spark's log: {self._log})"
                ) from error
        return self

    def __exit__(self, kind, error, trace) -> None:
        with warnings.catch_warnings(), contextlib.suppress(Exception):  # Spark's process may have ended already
            warnings.simplefilter("ignore")
            self._context.stop()
        if not isinstance(error, ChildProcessError):  # keep the log that this error names
            os.remove(self._log)

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task, after all tasks have ended.
        Raises ChildProcessError: a task failed as often as Spark repeats it.
        Raises InputError: the error that `function` raised on an executor; Spark does not repeat such a task."""
        tasks = list(tasks)
        if not tasks:
            return
        logging.info("running on %s: %d task(s)", self._context.master, len(tasks))

        def outcomes() -> list:
            # One partition per task: Spark schedules tasks one by one and repeats only lost tasks.
            return self._context.parallelize(tasks, len(tasks)).map(lambda task: _attempt(function, task)).collect()

        for result, error in self._collected(outcomes):
            if error is not None:
                raise error
            yield result

    def _collected(self, collect: Callable[[], list]) -> list:
        """Runs a job in another thread, because the thread of a job handles no signals."""
        outcomes: list = []
        thread = threading.Thread(target=lambda: outcomes.append(_outcome(collect)), daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_SECONDS_BETWEEN_LOOKS)
        except BaseException:
            with contextlib.suppress(Exception):
                self._context.cancelAllJobs()
            raise
        (outcome,) = outcomes
        if isinstance(outcome, Exception):
            raise ChildProcessError(
                f"Spark gave up: {_reason(outcome)}; finished work is kept: run the same command again (Spark's log: "
                f"{self._log})"
            ) from outcome
        return outcome


def _outcome(collect: Callable[[], list]) -> list | Exception:
    try:
        return collect()
    except Exception as error:
        return error


def _attempt(function: Callable[[Any], Any], task: Any) -> tuple[Any, InputError | None]:
    """Runs a task on an executor. Spark would repeat a task that raises an InputError."""
    use_one_core()
    try:
        return function(task), None
    except InputError as error:
        return None, error


def _require_spark() -> None:
    """Checks for what Spark would report at great length."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise InputError("--runner=spark needs PySpark: pip install pyspark") from error
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if not java and "PYSPARK_GATEWAY_PORT" not in os.environ:  # set if spark-submit has started Java
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise InputError(f"--runner=spark needs Java 17, and there is no java {where}; install openjdk-17-jre-headless")


def _start(master: str, num_workers: int | None, log):
    """Starts a Spark context whose process writes its log to `log`."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    # Drop py4j's log lines about connections; a broken connection is reported by the job, in one line.
    logging.get_absl_handler().addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
    warnings.filterwarnings("ignore", module="pyspark")  # warnings about newer versions of pandas
    # Executors on this machine use this Python unless the cluster's configuration sets another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName("bert_tf").set("spark.ui.showConsoleProgress", "false")
    if master:
        conf.setMaster(master)
    if num_workers:
        conf.set("spark.cores.max", str(num_workers))
    gateway = None
    if SparkContext._gateway is None:
        # In a new session, signals to this process group cannot end Spark before this process stops Spark.
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    context = SparkContext(conf=conf, gateway=gateway)
    root = str(pathlib.Path(__file__).resolve().parents[2])
    if root != sysconfig.get_paths()["purelib"]:
        context.environment["PYTHONPATH"] = root  # executors do not find a source checkout by themselves
    context.environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    return context


def _reason(error: Exception) -> str:
    """Returns Spark's error message, which may have hundreds of lines, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # the name of an error starts the line of a Python or a Java traceback that tells the cause
    errors = [line for line in lines if re.match(r"(: )?[\w.]*(Error|Exception)\b: ", line)]
    return (errors or lines)[-1].removeprefix(": ")
