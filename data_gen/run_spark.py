"""Work on a Spark cluster: the same functions of the same tasks, on its executors.

Executors need this package (docs/scaling.md says how they get it) and a file system that the driver and all
of them share: what a task writes is a file. A task that is run again, after a lost executor or in
speculation, writes the same bytes under the same name.
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

from data_gen.runner import use_one_core
from tfrecords.errors import InputError

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_BETWEEN_WARNINGS = 30.0
_SECONDS_TO_CONNECT = 10.0
# Spark ends the Python process of a cancelled task after two waits of two seconds.
_SECONDS_TO_CANCEL = 15.0


class SparkRunner:
    """Runs functions of tasks on PySpark; a context manager.

    Args:
      master: URL of the cluster's master; empty for what spark-submit was given.
      num_workers: tasks at work at the same time, on a standalone cluster; None for what the cluster gives.
    """

    def __init__(self, master: str = "", num_workers: int | None = None):
        self._master, self._asked = master, num_workers
        self._log = ""
        self._context = None
        self._attempts = 1

    @property
    def num_workers(self) -> int:
        """Tasks at work at the same time, as far as executors are there already."""
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
                    f"(its log: {self._log})"
                ) from error
        if not self._context.master.startswith("local"):
            self._attempts = int(self._context.getConf().get("spark.task.maxFailures", "4"))
        return self

    def __exit__(self, kind, error, trace) -> None:
        with warnings.catch_warnings(), contextlib.suppress(Exception):  # where Spark's process has ended already
            warnings.simplefilter("ignore")
            self._context.stop()
        if not isinstance(error, ChildProcessError):  # whose message names the log
            os.remove(self._log)

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task, in the order in which they are done.

        Raises:
          ChildProcessError: Spark gave up.
          Exception: what `function` raised on an executor: InputError at once, others after Spark's repetitions.
        """
        tasks = list(tasks)
        if not tasks:
            return
        # outcomes come home one by one in the accumulator, and all of them once more at the job's end
        outcomes = self._context.accumulator([], _Joined())
        attempt = _Attempt(function, outcomes, self._attempts)
        # a partition a task: Spark hands them out one by one, and repeats only what was lost
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
            with contextlib.suppress(Exception):  # where Spark's process has ended, of which the job will tell
                watch.look()
        if job.error is not None:
            raise ChildProcessError(
                f"Spark gave up: {_reason(job.error, self._log)}; what is finished is kept: run the same command "
                f"again (Spark's log: {self._log})"
            ) from job.error

    def _cancel(self) -> None:
        """Ends all tasks, so that none writes any more when this returns."""
        self._context.cancelAllJobs()
        end = time.monotonic() + _SECONDS_TO_CANCEL
        tracker = self._context._jsc.sc().statusTracker()
        while any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()) and time.monotonic() < end:
            time.sleep(_SECONDS_BETWEEN_LOOKS)


class _Attempt:
    """What an executor calls.

    An error that may pass (a disk, the network) is raised, for Spark to try the task again. The last one, and
    bad input at once, come home as values: as exceptions Spark would wrap them in Java's.
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
    """The error if it can be pickled, else one with its words."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(repr(error))


class _Joined:
    """An accumulator's rule: lists are joined."""

    def zero(self, value: list) -> list:
        """What an executor begins with."""
        return []

    def addInPlace(self, value: list, more: list) -> list:
        """Both, in the first one's place."""
        value.extend(more)
        return value


class _Job:
    """A job at work in a thread of its own, so that this one hears of signals and can report."""

    def __init__(self, collect: Callable[[], list]):
        self.outcomes: list = []
        self.error: Exception | None = None
        self._collect = collect
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ended(self, seconds: float) -> bool:
        """Whether the job has ended, after waiting for at most so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.outcomes = self._collect()
        except Exception as error:
            self.error = error


class _Watch:
    """Tells a person of what Spark keeps to itself: that nobody takes the work, that some of it was lost."""

    def __init__(self, context):
        self._context = context
        self._failed = 0
        self._told = time.monotonic()

    def look(self) -> None:
        """Logs what has changed."""
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        for stage in filter(None, stages):
            if stage.numFailedTasks > self._failed:
                self._failed = stage.numFailedTasks
                logging.warning("%d task(s) failed or were lost with an executor; Spark makes them again", self._failed)
            if stage.numActiveTasks:
                self._told = time.monotonic()
            elif time.monotonic() - self._told > _SECONDS_BETWEEN_WARNINGS:
                self._told = time.monotonic()
                logging.warning("no executor takes work: are master and executors there, with a free core and memory?")


def _check(master: str) -> None:
    """Finds at once what Spark would find late, or would tell in many words.

    Raises:
      InputError: PySpark or Java is missing, or nobody answers at the master's address.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise InputError("--runner=spark needs PySpark: pip install 'bert_tf[spark]'") from error
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if not java and "PYSPARK_GATEWAY_PORT" not in os.environ:  # which says that spark-submit started Java
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise InputError(f"--runner=spark needs Java 17, and there is no java {where}; install openjdk-17-jre-headless")
    if master.startswith("spark://"):
        reasons = [_unreachable(address) for address in master.removeprefix("spark://").split(",")]
        if all(reasons):
            raise InputError(f"--spark_master={master}: {reasons[0]}; is the master running?")


def _unreachable(address: str) -> str:
    """Why HOST:PORT cannot be reached; empty if it can."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return "is not spark://HOST:PORT"
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except (OSError, OverflowError) as error:
        return f"nobody answers at {address} ({error})"
    return ""


def _start(master: str, num_workers: int | None, log):
    """A Spark context whose process writes its own log to `log`."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    # tells of every connection that closes, and with a traceback of each that breaks, which the job tells in one line
    logging.get_absl_handler().addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
    warnings.filterwarnings("ignore", module="pyspark")  # of what it cannot do with a newer pandas
    # so that executors on this machine run what runs here; a cluster's setting goes first
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName("create_pretraining_data").set("spark.ui.showConsoleProgress", "false")
    if master:
        conf.setMaster(master)
    if num_workers:
        conf.set("spark.cores.max", str(num_workers))
    gateway = None
    if SparkContext._gateway is None:
        # in a session of its own: a signal to this process's group shall not end Spark before this process says so
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    context = SparkContext(conf=conf, gateway=gateway)
    if num_workers and not context.master.startswith("spark://"):
        context.stop()
        raise InputError(
            f"--num_workers={num_workers}: with the master {context.master} Spark's own settings say how many; leave "
            "the flag out"
        )
    root = str(pathlib.Path(__file__).resolve().parents[1])
    if root != sysconfig.get_paths()["purelib"]:
        # this is a checkout, which executors on this machine would not find by themselves
        context.environment["PYTHONPATH"] = root
    context.environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # where Spark's process is lost it would print a traceback before the job can tell
    context._accumulatorServer.handle_error = lambda *_: None
    return context


def _reason(error: Exception, log: str) -> str:
    """One line of what Spark says in hundreds."""
    java = getattr(error, "java_exception", None)
    text = str(error)
    if java is not None:
        with contextlib.suppress(Exception):  # Java may have gone by now
            text = java.getMessage() or java.toString()
            while java.getCause() is not None:
                java = java.getCause()
            text = text if (java.getMessage() or "") in text else f"{text} ({java.toString()})"
    elif "JAVA_GATEWAY_EXITED" in text:  # then only the log knows
        text = pathlib.Path(log).read_text(errors="replace")
        text = next((line for line in text.splitlines() if re.search(r"Exception|Error|\bmust\b", line)), text)
    lines = [line.strip() for line in text.partition("Driver stacktrace")[0].splitlines() if line.strip()]
    # of a Python traceback the line that begins with the error's name
    errors = [line for line in lines[1:] if re.match(r"[\w.]*(Error|Exception)\b: ", line)]
    return " ".join([*lines[:1], *errors[-1:]])
