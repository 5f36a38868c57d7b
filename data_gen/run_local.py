"""Work on this machine's cores: processes that take one task after the other.

A worker that dies is noticed at once, and no worker outlives the process that started it.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from typing import Any

from data_gen.runner import use_one_core

# Imported once, in the server that workers are forked from.
_PRELOAD = ["data_gen.token_blocks", "data_gen.examples"]


class LocalRunner:
    """Runs functions of tasks in processes; a context manager.

    Args:
      num_workers: number of processes; 1 works in this process; None for one a core.
    """

    def __init__(self, num_workers: int | None = None):
        self.num_workers = num_workers or len(os.sched_getaffinity(0))
        self._workers: list[_Worker] = []

    def __enter__(self) -> "LocalRunner":
        if self.num_workers > 1:
            # forked from a process without threads at work, which holds TensorFlow's code for all of them
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(_PRELOAD)
            # the server takes no module path from this process, and would preload what is installed, not what runs
            with _environment("PYTHONPATH", os.pathsep.join(filter(None, sys.path))):
                self._workers = [_Worker(context) for _ in range(self.num_workers)]
        return self

    def __exit__(self, *exception) -> None:
        self._kill_workers()

    def _kill_workers(self) -> None:
        for worker in self._workers:
            worker.process.kill()
            worker.process.join()

    def map(self, function: Callable[[Any], Any], tasks: Iterable) -> Iterator:
        """Yields `function(task)` for every task, in the order in which they are done.

        Raises:
          ChildProcessError: a worker died.
          Exception: what `function` raises.
        """
        if not self._workers:
            use_one_core()
            yield from map(function, tasks)
            return
        todo = iter(tasks)
        idle, busy = list(self._workers), {}
        while True:
            while idle and (task := next(todo, None)) is not None:
                worker = idle.pop()
                worker.give(function, task)
                busy[worker.pipe] = worker
            if not busy:
                return
            for pipe in connection.wait(list(busy)):
                worker = busy.pop(pipe)
                result, error = worker.receive()
                if error is not None:
                    self._kill_workers()  # none shall write to a folder that is removed on bad input
                    raise error
                idle.append(worker)
                yield result


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
    """A process and the pipe through which it gets tasks."""

    def __init__(self, context):
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # so that the pipe ends when the worker does

    def give(self, function: Callable, task: Any) -> None:
        try:
            self.pipe.send((function, task))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._died() from error

    def receive(self) -> tuple[Any, Exception | None]:
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            raise self._died() from error

    def _died(self) -> ChildProcessError:
        self.process.join(1)
        code = self.process.exitcode
        how = f"signal {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"
        return ChildProcessError(
            f"a worker process died ({how}; out of memory?); what is finished is kept: run the same command "
            "again, with fewer --num_workers if memory is short"
        )


def _work(pipe: connection.Connection) -> None:
    # the terminal's Ctrl-C and a service manager's SIGTERM reach all processes; the first one decides
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
        except (TypeError, AttributeError, pickle.PicklingError):  # an error that holds what cannot be sent
            pipe.send((None, RuntimeError(repr(message[1]))))


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)
