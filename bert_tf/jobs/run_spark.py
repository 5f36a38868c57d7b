"""A runner for a Spark cluster: executors apply the functions to the tasks.

Executors need this package (see docs/how_to/spark.md). They also need a file system that they share with the driver,
because tasks write files. Spark may run a task again if an executor was lost or the task seems slow. The task then
writes the same bytes under the same name.
"""

import contextlib
import os
import pathlib
import pickle
import re
import shutil
import socket
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.jobs.run_local import use_one_core

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_BETWEEN_WARNINGS = 30.0
_SECONDS_TO_CONNECT = 10.0
# Spark kills the Python process of a cancelled task after two waits of two seconds.
_SECONDS_TO_CANCEL = 15.0


class SparkRunner:
    """A context manager that applies functions to tasks through PySpark.

    Args:
      master: URL of the cluster's master; empty for the master given to spark-submit.
      num_workers: maximum number of concurrent tasks on a standalone cluster; None uses all cores of the cluster.
    """

    def __init__(self, master: str = "", num_workers: int | None = None):
        self._master, self._asked = master, num_workers
        self._log = ""
        self._context = None
        self._attempts = 1

    @property
    def num_workers(self) -> int:
        """Number of concurrent tasks on the executors that have registered so far."""
        return self._asked or self._context.defaultParallelism

    def __enter__(self) -> "SparkRunner":
        _check(self._master)
        handle, self._log = tempfile.mkstemp(prefix="spark-", suffix=".log")
        with os.fdopen(handle, "wb") as log:
            try:
                self._context = _start(self._master, self._asked, log)
            except BaseException as error:
                if isinstance(error, InputError) or not isinstance(error, Exception):  # a signal
                    os.remove(self._log)
                    raise
                raise InputError(
                    f"--spark_master={self._master}: Spark does not start: {_reason(error, self._log)} "
                    f"(Spark's log: {self._log})"
                ) from error
        if not self._context.master.startswith("local"):
            self._attempts = int(self._context.getConf().get("spark.task.maxFailures", "4"))
        return self

    def __exit__(self, kind, error, trace) -> None:
        with warnings.catch_warnings(), contextlib.suppress(Exception):  # Spark's process may have ended already
            warnings.simplefilter("ignore")
            self._context.stop()
        if not isinstance(error, ChildProcessError):  # keep the log that this error names
            os.remove(self._log)

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task, in order of completion.

        Raises:
          ChildProcessError: Spark aborted the job.
          Exception: an error that `function` raised on an executor. An InputError is raised at once. Other errors are
            raised after Spark's retries.
        """
        tasks = list(tasks)
        if not tasks:
            return
        # The accumulator delivers outcomes one by one. The finished job returns all outcomes again.
        outcomes = self._context.accumulator([], _Joined())
        attempt = _Attempt(function, outcomes, self._attempts)
        # One partition per task: Spark schedules tasks one by one and repeats only lost tasks.
        job = _Job(lambda: self._context.parallelize(list(enumerate(tasks)), len(tasks)).map(attempt).collect())
        watch = _Watch(self._context)
        given, seen = set(), 0
        while True:
            ended = job.ended(_SECONDS_BETWEEN_LOOKS)
            arrived = outcomes.value[seen:]
            seen += len(arrived)
            for index, result, error, trace in arrived + job.outcomes:
                if error is not None:
                    with contextlib.suppress(Exception):
                        self._cancel()
                    raise error from (ChildProcessError(f"on an executor:\n{trace}") if trace else None)
                if index not in given:
                    given.add(index)
                    yield result
            if ended:
                break
            with contextlib.suppress(Exception):  # Spark's process may have ended, which the job will report
                watch.look()
        if job.error is not None:
            raise ChildProcessError(
                f"Spark gave up: {_reason(job.error, self._log)}; finished work is kept: run the same command "
                f"again (Spark's log: {self._log})"
            ) from job.error

    def _cancel(self) -> None:
        self._context.cancelAllJobs()
        end = time.monotonic() + _SECONDS_TO_CANCEL
        tracker = self._context._jsc.sc().statusTracker()
        while any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()) and time.monotonic() < end:
            time.sleep(_SECONDS_BETWEEN_LOOKS)


class _Attempt:
    """The function that an executor calls.

    A possibly transient error (disk, network) is raised, so that Spark retries the task. The error of the last
    attempt, or an InputError, is returned as a value, because Spark would wrap an exception in a Java exception.
    """

    def __init__(self, function: Callable[[Any], Any], outcomes, attempts: int):
        self._function, self._outcomes, self._attempts = function, outcomes, attempts

    def __call__(self, numbered: tuple[int, Any]) -> tuple[int, Any, Exception | None, str]:
        from pyspark import TaskContext

        use_one_core()
        index, task = numbered
        try:
            outcome = (index, self._function(task), None, "")
        except InputError as error:
            outcome = (index, None, error, "")
        except Exception as error:
            if TaskContext.get().attemptNumber() + 1 < self._attempts:
                raise
            outcome = (index, None, _portable(error), traceback.format_exc())
        self._outcomes.add([outcome])
        return outcome


def _portable(error: Exception) -> Exception:
    """Returns the error if it can be pickled, else a RuntimeError with its text."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(repr(error))


class _Joined:
    """Tells a Spark accumulator to concatenate lists."""

    def zero(self, value: list) -> list:
        return []

    def addInPlace(self, value: list, more: list) -> list:
        value.extend(more)
        return value


class _Job:
    """A Spark job in its own thread, so that the main thread can handle signals and report progress."""

    def __init__(self, collect: Callable[[], list]):
        self.outcomes: list = []
        self.error: Exception | None = None
        self._collect = collect
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ended(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.outcomes = self._collect()
        except Exception as error:
            self.error = error


class _Watch:
    """Logs problems that Spark does not report: no executor accepts tasks, or tasks were lost."""

    def __init__(self, context):
        self._context = context
        self._failed = 0
        self._told = time.monotonic()

    def look(self) -> None:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        for stage in filter(None, stages):
            if stage.numFailedTasks > self._failed:
                self._failed = stage.numFailedTasks
                logging.warning("%d task(s) failed or were lost with an executor; Spark retries them", self._failed)
            if stage.numActiveTasks:
                self._told = time.monotonic()
            elif time.monotonic() - self._told > _SECONDS_BETWEEN_WARNINGS:
                self._told = time.monotonic()
                logging.warning(
                    "no executor accepts tasks; check that master and executors run and have free cores and memory"
                )


def _check(master: str) -> None:
    """Checks for problems that Spark would report late or at great length."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise InputError("--runner=spark needs PySpark: pip install pyspark") from error
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if not java and "PYSPARK_GATEWAY_PORT" not in os.environ:  # set if spark-submit has started Java
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise InputError(f"--runner=spark needs Java 17, and there is no java {where}; install openjdk-17-jre-headless")
    if master.startswith("spark://"):
        reasons = [_unreachable(address) for address in master.removeprefix("spark://").split(",")]
        if all(reasons):
            raise InputError(f"--spark_master={master}: {reasons[0]}; is the master running?")


def _unreachable(address: str) -> str:
    """Returns the reason why HOST:PORT cannot be reached; empty if a server answers."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return "is not spark://HOST:PORT"
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except (OSError, OverflowError) as error:
        return f"there is no answer at {address} ({error})"
    return ""


def _start(master: str, num_workers: int | None, log):
    """Starts a Spark context whose process writes its log to `log`."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    # Drop py4j's log lines. py4j logs every closed connection, and a traceback for each broken connection. The job
    # reports broken connections in one line.
    logging.get_absl_handler().addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
    warnings.filterwarnings("ignore", module="pyspark")  # warnings about newer versions of pandas
    # Executors on this machine use this Python unless the cluster's configuration sets another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName("create_pretraining_data").set("spark.ui.showConsoleProgress", "false")
    if master:
        conf.setMaster(master)
    if num_workers:
        conf.set("spark.cores.max", str(num_workers))
    gateway = None
    if SparkContext._gateway is None:
        # In a new session, signals to this process group cannot end Spark before this process stops Spark.
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    context = SparkContext(conf=conf, gateway=gateway)
    if num_workers and not context.master.startswith("spark://"):
        context.stop()
        raise InputError(
            f"--num_workers={num_workers}: with the master {context.master}, Spark's own settings decide the number of "
            "workers; omit the flag"
        )
    root = str(pathlib.Path(__file__).resolve().parents[2])
    if root != sysconfig.get_paths()["purelib"]:
        # Executors on this machine do not find a source checkout by themselves.
        context.environment["PYTHONPATH"] = root
    context.environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # If Spark's process died, the accumulator server would print a traceback before the job can report the error.
    context._accumulatorServer.handle_error = lambda *_: None
    return context


def _reason(error: Exception, log: str) -> str:
    """Returns Spark's error message, which may have hundreds of lines, as one line."""
    java = getattr(error, "java_exception", None)
    text = str(error)
    if java is not None:
        with contextlib.suppress(Exception):  # the Java process may have ended
            text = java.getMessage() or java.toString()
            while java.getCause() is not None:
                java = java.getCause()
            text = text if (java.getMessage() or "") in text else f"{text} ({java.toString()})"
    elif "JAVA_GATEWAY_EXITED" in text:  # only the log contains the reason
        text = pathlib.Path(log).read_text(errors="replace")
        text = next((line for line in text.splitlines() if re.search(r"Exception|Error|\bmust\b", line)), text)
    lines = [line.strip() for line in text.partition("Driver stacktrace")[0].splitlines() if line.strip()]
    # Keep the line of a Python traceback that starts with the name of the error.
    errors = [line for line in lines[1:] if re.match(r"[\w.]*(Error|Exception)\b: ", line)]
    return " ".join([*lines[:1], *errors[-1:]])
