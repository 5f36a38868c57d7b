"""Runs a model on batches of requests, with TF Serving's parameters, limits and errors.

As in TF Serving, a batch contains requests in the order of their arrival. Our exports do not compute padding, so a
batch may mix short and long texts.
"""

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from export.serve.config_files import Batching
from export.serve.errors import Code, ServingError, invalid
from export.serve.servable import Arrays
from export.serve.versions import Version


@dataclasses.dataclass(eq=False)
class _Task:
    """A waiting request: its tensors and its number of rows."""

    feeds: Arrays
    rows: int
    arrived: float
    answer: asyncio.Future


@dataclasses.dataclass(eq=False)
class _Queue:
    """Requests that can share a batch: they use the same version, tensors and row shapes."""

    version: Version
    fetches: tuple[str, ...]
    tasks: list[_Task] = dataclasses.field(default_factory=list)

    def rows(self) -> int:
        return sum(task.rows for task in self.tasks)


class Batcher:
    """Runs requests in batches. All methods run in the event loop; only batches run in threads.

    Args:
      batching: the parameters.
      on_batch: called for each batch with the number of rows and the seconds that the oldest request waited.
    """

    def __init__(self, batching: Batching, on_batch: Callable[[int, float], None] = lambda rows, waited: None):
        self._batching = batching
        self._on_batch = on_batch
        self._threads = ThreadPoolExecutor(batching.num_batch_threads, thread_name_prefix="batch")
        self._idle_threads = batching.num_batch_threads
        self._queues: dict[tuple, _Queue] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, version: Version, feeds: Arrays, fetches: Sequence[str]) -> Arrays:
        """See `running.Runner`.

        Raises:
          ServingError: INVALID_ARGUMENT if inputs are scalars, differ in their number of rows, or have too many rows;
            UNAVAILABLE if too many rows wait.
        """
        rows = _rows(feeds)
        if rows > self._batching.max_batch_size:
            raise invalid(f"Task size {rows} is larger than maximum input batch size {self._batching.max_batch_size}")
        waiting = sum(queue.rows() for queue in self._queues.values() if queue.version is version)
        if waiting + rows > self._batching.max_enqueued_batches * self._batching.max_batch_size:
            raise ServingError(Code.UNAVAILABLE, "The batch scheduling queue to which this task was submitted is full")
        key = (id(version), tuple(sorted(fetches)), rows > 0, *self._kind(feeds))
        queue = self._queues.setdefault(key, _Queue(version, tuple(fetches)))
        loop = asyncio.get_running_loop()
        task = _Task(feeds, rows, loop.time(), loop.create_future())
        queue.tasks.append(task)
        self._start_batches()
        return await task.answer

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _kind(self, feeds: Arrays) -> list[tuple]:
        padded = self._batching.pad_variable_length_inputs
        return [
            (name, array.dtype.str, array.ndim if padded else array.shape[1:]) for name, array in sorted(feeds.items())
        ]

    def _start_batches(self) -> None:
        """Starts a batch in each idle thread, if enough requests wait or a request has waited long enough.

        If a thread is still idle, a timer calls this method again when the oldest request has waited long enough.
        """
        for key, queue in list(self._queues.items()):
            queue.tasks = [task for task in queue.tasks if not task.answer.done()]  # drops cancelled requests
            if not queue.tasks:
                del self._queues[key]
        loop = asyncio.get_running_loop()
        now = loop.time()
        by_age = sorted(self._queues.values(), key=lambda queue: queue.tasks[0].arrived)
        for queue in by_age:
            while self._idle_threads and queue.tasks and self._is_ready(queue, now):
                self._start(queue, now)
        waiting = [queue.tasks[0].arrived for queue in by_age if queue.tasks]
        if self._idle_threads and waiting:
            if self._timer:
                self._timer.cancel()
            delay = max(0.0, min(waiting) + self._batching.batch_timeout - now)
            self._timer = loop.call_later(delay, self._start_batches)

    def _is_ready(self, queue: _Queue, now: float) -> bool:
        waited = now - queue.tasks[0].arrived
        return waited >= self._batching.batch_timeout or queue.rows() >= self._batching.max_batch_size

    def _start(self, queue: _Queue, now: float) -> None:
        ends = itertools.accumulate(task.rows for task in queue.tasks)
        count = sum(end <= self._batching.max_batch_size for end in ends)
        tasks, queue.tasks = queue.tasks[:count], queue.tasks[count:]
        self._idle_threads -= 1
        queue.version.hold()
        self._on_batch(sum(task.rows for task in tasks), now - tasks[0].arrived)
        loop = asyncio.get_running_loop()
        future = self._threads.submit(self._compute, queue, tasks)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._finish, queue.version, tasks, done))

    def _finish(self, version: Version, tasks: list[_Task], done) -> None:
        self._idle_threads += 1
        version.release()
        for task, answer in zip(tasks, done.result(), strict=True):
            if task.answer.done():
                continue
            if isinstance(answer, Exception):
                task.answer.set_exception(answer)
            else:
                task.answer.set_result(answer)
        self._start_batches()

    def _compute(self, queue: _Queue, tasks: list[_Task]) -> list[Arrays | Exception]:
        """Returns each request's answer or error. If a batch fails, each request runs alone to isolate the error."""
        try:
            return self._compute_together(queue, tasks)
        except Exception as error:
            if len(tasks) == 1:
                return [error]
        return [self._compute(queue, [task])[0] for task in tasks]

    def _compute_together(self, queue: _Queue, tasks: list[_Task]) -> list[Arrays]:
        rows = sum(task.rows for task in tasks)
        filled = next((size for size in self._batching.allowed_batch_sizes if size >= rows), rows) if rows else 0
        feeds = {name: _concatenate([task.feeds[name] for task in tasks], filled) for name in tasks[0].feeds}
        arrays = queue.version.servable.run(feeds, queue.fetches)
        for array in arrays.values():
            if not array.ndim or len(array) != filled:
                raise ServingError(
                    Code.FAILED_PRECONDITION,
                    "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the "
                    "input tensors",
                )
        ends = np.cumsum([task.rows for task in tasks])
        counts = [name for name in arrays if name in queue.version.servable.counts]
        return [_rows_of(arrays, slice(end - task.rows, end), counts) for task, end in zip(tasks, ends, strict=True)]


def _rows_of(arrays: Arrays, rows: slice, counts: Sequence[str]) -> Arrays:
    """Returns the rows of one request, without columns that are padding in all of them, as if the request ran alone.

    Args:
      arrays: the answer to the batch.
      rows: the rows of the request.
      counts: names of the arrays that contain the number of columns of each row; see `Servable.counts`.
    """
    widths = {arrays[name].max(initial=0): arrays[name][rows].max(initial=0) for name in counts}
    own = {name: array[rows] for name, array in arrays.items()}
    return {name: array[:, : widths.get(array.shape[1])] if array.ndim > 1 else array for name, array in own.items()}


def _rows(feeds: Arrays) -> int:
    sizes = {len(array) if array.ndim else None for array in feeds.values()}
    if None in sizes or not sizes:
        raise invalid("Batching Run() input tensors must have at least one dimension")
    if len(sizes) > 1:
        raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()


def _concatenate(arrays: list[np.ndarray], rows: int) -> np.ndarray:
    """Concatenates arrays, pads short rows with zeros or "", and repeats the first row until there are `rows` rows."""
    shape = tuple(max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True))
    empty = b"" if arrays[0].dtype == np.object_ else 0
    padded = [
        array
        if array.shape[1:] == shape
        else np.pad(
            array,
            [(0, 0), *((0, size - own) for size, own in zip(shape, array.shape[1:], strict=True))],
            constant_values=empty,
        )
        for array in arrays
    ]
    missing = rows - sum(map(len, padded))
    return np.concatenate([*padded, *([np.repeat(padded[0][:1], missing, axis=0)] if missing else [])])
