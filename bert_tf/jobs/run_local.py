"""A runner for the cores of this machine: each worker process runs one task at a time.

The runner notices the death of a worker at once, and no worker outlives the process that started it.
"""

import contextlib
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import connection
from typing import Any

from bert_tf.jobs.runner import use_one_core


class LocalRunner:
    """A context manager that applies functions to tasks in worker processes.

    Args:
      num_workers: number of processes; 1 runs all tasks in this process; None means one per core.
      preload: modules that the tasks use. They are imported before the workers are forked, so that the workers share
        the memory of the modules.
      own_devices: whether tasks that run in this process use the devices that the process has chosen, instead of one
        core.
    """

    def __init__(self, num_workers: int | None = None, preload: Sequence[str] = (), own_devices: bool = False):
        self.num_workers = num_workers or len(os.sched_getaffinity(0))
        self._preload, self._own_devices = list(preload), own_devices
        self._context = None
        self._workers: list[_Worker] = []

    def __enter__(self) -> "LocalRunner":
        if self.num_workers > 1:
            self._context = _context(self._preload)
            try:
                # The fork server does not inherit sys.path. Without this variable, the server could preload an
                # installed copy of this package instead of the running copy.
                with _environment("PYTHONPATH", os.pathsep.join(filter(None, sys.path))):
                    for _ in range(self.num_workers):
                        self._workers.append(_Worker(self._context))
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *exception) -> None:
        for worker in self._workers:
            worker.end()
        self._workers = []

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task, in order of completion.

        Raises:
          ChildProcessError: a worker died.
          Exception: an error that `function` raised.
        """
        if not self._workers:
            if not self._own_devices:
                use_one_core()
            yield from map(function, tasks)
            return
        todo = iter(tasks)
        idle, busy = list(self._workers), {}
        try:
            while True:
                while idle and (task := next(todo, None)) is not None:
                    worker = idle.pop()
                    busy[worker.pipe] = worker
                    worker.give(function, task)
                if not busy:
                    return
                for pipe in connection.wait(list(busy)):
                    result, error = busy[pipe].receive()
                    idle.append(busy.pop(pipe))
                    if error is not None:
                        raise error
                    yield result
        finally:
            # After an error or an early exit, stop the busy workers, so that they write no more files and do not send
            # their results to the next call of `map`.
            self._replace([worker for worker in busy.values() if worker in self._workers])

    def _replace(self, workers: list["_Worker"]) -> None:
        for worker in workers:
            worker.end()
            self._workers.remove(worker)
        self._workers += [_Worker(self._context) for _ in workers]


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


class _Worker:
    """A worker process and the pipe that carries its tasks and results."""

    def __init__(self, context):
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # the pipe then reports EOF when the worker dies

    def give(self, function: Callable, task: Any) -> None:
        try:
            self.pipe.send((function, task))
        except OSError as error:
            raise self._died() from error

    def receive(self) -> tuple[Any, Exception | None]:
        try:
            return self.pipe.recv()
        except (EOFError, OSError) as error:  # OSError: the worker died while it sent a result
            raise self._died() from error

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _died(self) -> ChildProcessError:
        self.process.join(60)  # the process has closed its pipe, so it is about to end
        code = self.process.exitcode
        how = f"signal {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"
        return ChildProcessError(
            f"a worker process died ({how}; out of memory?); finished work is kept: run the same command "
            "again, with fewer --num_workers if memory is short"
        )


def _work(pipe: connection.Connection) -> None:
    # Ctrl-C and a service manager's SIGTERM reach all processes. The parent handles them and stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_one_core()
    while True:
        try:
            function, task = pipe.recv()
        except EOFError:
            return
        try:
            message = (function(task), None)
        except Exception as error:
            message = (None, error)
        try:
            pipe.send(message)
        except (TypeError, AttributeError, pickle.PicklingError) as problem:  # the result cannot be pickled
            pipe.send((None, RuntimeError(repr(message[1] or problem))))
        except BrokenPipeError:
            return  # the parent process has ended


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)
