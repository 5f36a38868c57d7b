"""Runs requests in threads: separately (`Alone`) or in batches (`batching.Batcher`)."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from export.serve.servable import Arrays
from export.serve.versions import Version


class Runner(Protocol):
    """Runs a version without blocking the event loop."""

    async def run(self, version: Version, feeds: Arrays, fetches: Sequence[str]) -> Arrays:
        """See `Servable.run`. If a request is cancelled before its computation starts, the model does not run."""


class Alone:
    """Runs each request separately.

    Args:
      threads: number of requests that run at the same time.
      name: prefix of the thread names.
    """

    def __init__(self, threads: int, name: str):
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, version: Version, feeds: Arrays, fetches: Sequence[str]) -> Arrays:
        """See `Runner`."""
        loop = asyncio.get_running_loop()
        future = self._threads.submit(version.servable.run, feeds, fetches)
        # The computation continues even if the client disconnects, so the version must stay loaded.
        version.hold()
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(version.release))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
