"""Runs requests in threads: separately, or in batches with TF Serving's parameters and limits.

As in TF Serving, a batch contains requests in the order of their arrival. Our exports do not compute padding, so a
batch may mix short and long texts.
"""

import asyncio
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bert_tf.core.cores import usable_cores
from export.serve.errors import Code, ServingError, invalid
from export.serve.servable import Arrays
from export.serve.settings import ServeSettings
from export.serve.versions import Version


class Alone:
    """Runs each request separately.
    `threads`: number of requests that run at the same time."""

    def __init__(self, threads: int, name: str):
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, version: Version, feeds: Arrays, fetches: Sequence[str], seconds: float = math.inf) -> Arrays:
        """See `Servable.run`; the time includes the wait for a thread. A request that is cancelled before its
        computation starts does not run."""
        loop, deadline = asyncio.get_running_loop(), time.monotonic() + seconds
        future = self._threads.submit(lambda: version.servable.run(feeds, fetches, deadline - time.monotonic()))
        # The computation continues even if the client disconnects, so the version must stay loaded.
        version.hold()
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(version.release))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclasses.dataclass(eq=False)
class _Task:
    """A waiting request. Requests with equal keys can share a batch: same version, tensors and shapes of rows."""

    key: tuple
    version: Version
    feeds: Arrays
    fetches: tuple[str, ...]
    rows: int
    arrived: float
    deadline: float
    answer: asyncio.Future


class Batcher:
    """Runs requests in batches. All methods run in the event loop; only batches run in threads.
    `settings`: the flags; `num_batch_threads` batches run at the same time, by default one for two cores.
    `on_batch`: called for each batch with the number of rows and the seconds that the oldest request waited."""

    def __init__(self, settings: ServeSettings, on_batch: Callable[[int, float], None] = lambda rows, waited: None):
        self._most_rows, self._on_batch = settings.max_batch_size, on_batch
        self._most_waiting = settings.max_enqueued_batches * settings.max_batch_size
        self._timeout = settings.batch_timeout_micros / 1e6
        self._idle_threads = settings.num_batch_threads or max(1, usable_cores() // 2)
        self._threads = ThreadPoolExecutor(self._idle_threads, thread_name_prefix="batch")
        self._waiting: list[_Task] = []

    async def run(self, version: Version, feeds: Arrays, fetches: Sequence[str], seconds: float = math.inf) -> Arrays:
        """See `Alone.run`.
        Raises ServingError: INVALID_ARGUMENT if inputs are scalars, differ in their number of rows, or have too many
        rows; UNAVAILABLE if too many rows wait."""
        rows = _rows(feeds)
        if rows > self._most_rows:
            raise invalid(f"the request has {rows} rows, more than {self._most_rows} (--max_batch_size)")
        waiting = (task.rows for task in self._waiting if task.version is version and not task.answer.done())
        if sum(waiting) + rows > self._most_waiting:
            raise ServingError(Code.UNAVAILABLE, "too many requests wait; try again later")
        shapes = [(name, array.dtype.str, array.shape[1:]) for name, array in sorted(feeds.items())]
        key = (id(version), tuple(sorted(fetches)), rows > 0, *shapes)
        loop = asyncio.get_running_loop()
        times = loop.time(), time.monotonic() + seconds
        self._waiting.append(_Task(key, version, feeds, tuple(fetches), rows, *times, loop.create_future()))
        answer = self._waiting[-1].answer
        self._start_batches()
        if self._timeout:
            loop.call_later(self._timeout, self._start_batches)
        return await answer

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_batches(self) -> None:
        """Starts batches in idle threads, for requests that have waited long enough or that fill a batch."""
        now = asyncio.get_running_loop().time()
        self._waiting = [task for task in self._waiting if not task.answer.done()]  # drops cancelled requests
        for first in list(self._waiting):
            if self._idle_threads and first in self._waiting:
                tasks = [task for task in self._waiting if task.key == first.key]
                ends = list(itertools.accumulate(task.rows for task in tasks))
                if now - first.arrived >= self._timeout or ends[-1] >= self._most_rows:
                    self._start(tasks[: sum(end <= self._most_rows for end in ends)], now)

    def _start(self, tasks: list[_Task], now: float) -> None:
        self._waiting = [task for task in self._waiting if task not in tasks]
        self._idle_threads -= 1
        tasks[0].version.hold()
        self._on_batch(sum(task.rows for task in tasks), now - tasks[0].arrived)
        loop = asyncio.get_running_loop()
        future = self._threads.submit(self._compute, tasks)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._finish, tasks, done))

    def _finish(self, tasks: list[_Task], done) -> None:
        self._idle_threads += 1
        tasks[0].version.release()
        for task, answer in zip(tasks, done.result(), strict=True):
            if not task.answer.done():
                is_error = isinstance(answer, Exception)
                (task.answer.set_exception if is_error else task.answer.set_result)(answer)
        self._start_batches()

    def _compute(self, tasks: list[_Task]) -> list[Arrays | Exception]:
        """Returns each request's answer or error. If a batch fails, each request runs alone to isolate the error."""
        try:
            return self._compute_together(tasks)
        except Exception as error:
            if len(tasks) == 1:
                return [error]
        return [self._compute([task])[0] for task in tasks]

    def _compute_together(self, tasks: list[_Task]) -> list[Arrays]:
        rows = sum(task.rows for task in tasks)
        feeds = {name: np.concatenate([task.feeds[name] for task in tasks]) for name in tasks[0].feeds}
        seconds = max(task.deadline for task in tasks) - time.monotonic()
        servable = tasks[0].version.servable
        counts = {name: servable.counts[name] for name in tasks[0].fetches if name in servable.counts}
        arrays = servable.run(feeds, (*tasks[0].fetches, *counts.values()), seconds)
        for array in arrays.values():
            if not array.ndim or len(array) != rows:
                raise ServingError(
                    Code.FAILED_PRECONDITION, "an output has not one row for each row of the inputs; do not batch it"
                )
        ends = np.cumsum([task.rows for task in tasks])
        return [_rows_of(arrays, slice(end - task.rows, end), counts) for task, end in zip(tasks, ends, strict=True)]


def _rows_of(arrays: Arrays, rows: slice, counts: Mapping[str, str]) -> Arrays:
    """Returns the rows of one request, without columns that are padding in all of them, as if the request ran alone."""
    own = {name: array[rows] for name, array in arrays.items()}
    padded = {name: count for name, count in counts.items() if arrays[name].shape[1] == arrays[count].max(initial=0)}
    return own | {name: own[name][:, : own[count].max(initial=0)] for name, count in padded.items()}


def _rows(feeds: Arrays) -> int:
    sizes = {len(array) if array.ndim else None for array in feeds.values()}
    if None in sizes or not sizes:
        raise invalid("a batching server needs inputs with rows")
    if len(sizes) > 1:
        raise invalid("the inputs differ in their number of rows")
    return sizes.pop()
