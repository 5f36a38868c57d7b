"""A standalone Spark cluster on loopback: a master and two workers as real processes, which tests can kill."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pyspark

from tests.data_gen.processes import children, descendants

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(pyspark.__file__).parent
ENVIRONMENT = {
    **os.environ,
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "PYTHONPATH": "",  # the driver tells executors the path of the package
}


class Cluster:
    """A running cluster and its log.

    Attributes:
      url: the master's.
      log: the master's log, which tells of every executor that comes and goes.
    """

    def __init__(self, folder: pathlib.Path):
        self.url = ""
        self.log = folder / "master.log"
        self._folder = folder
        self._daemons: list[subprocess.Popen] = []

    def start(self) -> None:
        """Starts the master and two workers with one core each, and waits until the workers are registered."""
        self._launch("master", "master.Master", "--port", "0")
        (self.url,) = wait_for(lambda: re.findall(r"Starting Spark master at (spark://\S+)", self.log.read_text()))
        for name in ("worker1", "worker2"):
            folder = str(self._folder / name)
            self._launch(name, "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", folder, self.url)
        wait_for(lambda: self.log.read_text().count("Registering worker") == 2)

    def stop(self) -> None:
        """Kills all started processes and their descendants."""
        for run in _runs:  # processes of a failed test
            run.kill()
        for daemon in self._daemons:
            for pid in [*descendants(daemon.pid), daemon.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            daemon.wait()

    def executors(self) -> list[int]:
        """Returns the process ids of the executors."""
        found = [pid for daemon in self._daemons for pid in descendants(daemon.pid)]
        return [pid for pid in found if "CoarseGrainedExecutorBackend" in command_of(pid)]

    def python_workers(self) -> list[int]:
        """Returns the ids of the Python processes that run executors' tasks; each was forked from a daemon."""
        found = [pid for executor in self.executors() for daemon in children(executor) for pid in children(daemon)]
        return [pid for pid in found if "pyspark.daemon" in command_of(pid)]

    def _launch(self, name: str, kind: str, *arguments: str) -> None:
        command = [f"{HOME}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        with open(self._folder / f"{name}.log", "wb") as log:
            self._daemons.append(
                subprocess.Popen([*command, "--webui-port", "0", *arguments], env=ENVIRONMENT, stdout=log, stderr=log)
            )


_runs: list[subprocess.Popen] = []


class Run:
    """create_pretraining_data in a separate process.

    Args:
      folder: its working directory.
      flags: its flags, without the dashes.
    """

    def __init__(self, folder: pathlib.Path, **flags):
        script = ROOT / "data_gen" / "create_pretraining_data.py"
        words = [sys.executable, str(script), *(f"--{name}={value}" for name, value in flags.items())]
        self.process = subprocess.Popen(
            words, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        _runs.append(self.process)

    def finish(self, seconds: float = 3000) -> tuple[int, str]:
        """Returns the exit code and all output; kills the process after a time limit."""
        try:
            output, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, output

    def wait_for(self, condition: Callable):
        """Waits until a condition is true and returns its value; fails if the process ends before."""

        def holds():
            assert self.process.poll() is None, self.process.stdout.read()
            return condition()

        return wait_for(holds)


def wait_for(condition: Callable, seconds: float = 2000):
    """Waits until a condition is true and returns its value; checks every few hundredths of a second."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"waited in vain for {seconds:g} seconds"
        time.sleep(0.02)
    return value


def command_of(pid: int) -> str:
    """Returns the command line of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""
