"""Runs plans in threads: each by itself (`Alone`), or several at once (`batching.Batcher`)."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from export.serve.servable import Arrays
from export.serve.versions import Version


class Runner(Protocol):
    """How a version computes tensors without blocking the event loop."""

    async def run(self, version: Version, feeds: Arrays, fetches: Sequence[str]) -> Arrays:
        """Computes tensors as `Servable.run`. A cancelled call that has not begun never begins."""


class Alone:
    """Runs each request by itself.

    Args:
      threads: number of requests that run at the same time.
      name: of the threads.
    """

    def __init__(self, threads: int, name: str):
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, version: Version, feeds: Arrays, fetches: Sequence[str]) -> Arrays:
        """See `Runner`."""
        loop = asyncio.get_running_loop()
        future = self._threads.submit(version.servable.run, feeds, fetches)
        # A client that leaves does not stop a session that runs; the version must stay for it.
        version.hold()
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(version.release))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
