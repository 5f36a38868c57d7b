"""A runner for the cores of this machine: worker processes of the standard library's executor.

The runner notices the death of a worker at once, and no worker outlives the process that started it.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from bert_tf.core.cores import usable_cores


class LocalRunner:
    """A context manager that applies functions to tasks in worker processes.
    `num_workers`: number of processes; 1 runs all tasks in this process; None means one per core.
    `preload`: modules that the tasks use. They are imported before the workers are forked, so that the workers share
      the memory of the modules.
    `own_devices`: whether tasks that run in this process use the devices that the process has chosen, instead of one
      core."""

    def __init__(self, num_workers: int | None = None, preload: Sequence[str] = (), own_devices: bool = False):
        self.num_workers = num_workers or usable_cores()
        self._preload, self._own_devices = list(preload), own_devices
        self._context = self._executor = None

    def __enter__(self) -> "LocalRunner":
        if self.num_workers > 1:
            self._context = _context(self._preload)
            self._start()
        return self

    def __exit__(self, *exception) -> None:
        if self._executor is not None:
            self._kill()

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task, in order of completion.
        Raises ChildProcessError: a worker died.
        Raises Exception: an error that `function` raised."""
        if self._context is None:
            if not self._own_devices:
                use_one_core()
            yield from map(function, tasks)
            return
        if self._executor is None:
            self._start()
        executor, ended = self._executor, False
        try:
            todo = [executor.submit(function, task) for task in tasks]
            for done in futures.as_completed(todo):
                yield done.result()
            ended = True
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process died (out of memory?); finished work is kept: run the same command again, with fewer "
                "--num_workers if memory is short"
            ) from error
        finally:
            # After an error or an early exit, kill the workers, so that they write no more files. `map` starts others.
            if not ended and executor is self._executor:
                self._kill()

    def _start(self) -> None:
        # The fork server does not inherit sys.path. Without this variable, the server could preload an installed copy
        # of this package instead of the running copy.
        with _environment("PYTHONPATH", os.pathsep.join(filter(None, sys.path))):
            self._executor = futures.ProcessPoolExecutor(self.num_workers, self._context, _prepare)
            self._executor.submit(int).result()  # fork now, while this process has no threads of TensorFlow

    def _kill(self) -> None:
        for worker in list(self._executor._processes.values()):  # from Python 3.14: kill_workers
            worker.kill()
        self._executor.shutdown(cancel_futures=True)
        self._executor = None


def _context(preload: list[str]):
    """Returns a context that forks workers from a process that has imported TensorFlow, but not initialized it."""
    if "tensorflow" not in sys.modules:  # a script: TensorFlow has no threads in this process yet
        for name in preload:
            importlib.import_module(name)
        return multiprocessing.get_context("fork")
    # A process with TensorFlow's threads cannot be forked safely, so start a fork server.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preload)
    return context


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _prepare() -> None:
    # Ctrl-C and a service manager's SIGTERM reach all processes. The parent handles them and stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_one_core()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def use_one_core() -> None:
    """Makes TensorFlow in this process use one core and no GPU, because there is one process per core."""
    import tensorflow as tf

    try:
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError:
        pass  # TensorFlow is already initialized (the process does other work too), so its devices cannot be changed.
