"""Loads and unloads the versions of one model, and records their states."""

import asyncio
import dataclasses
import enum
import os
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor

import tensorflow as tf
from absl import logging

from export.serve.errors import ServingError, from_exception
from export.serve.servable import Servable

# Number of versions in the state END that the status still lists.
_KEPT_ENDED = 20


class State(enum.IntEnum):
    """States of `ModelVersionStatus`."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass
class Version:
    """A version of a model."""

    model: str
    number: int  # number of the version
    folder: str = ""
    state: State = State.START
    error: ServingError | None = None  # the error, if the version could not be loaded
    servable: Servable | None = None  # the loaded model in the states AVAILABLE and UNLOADING, otherwise None
    # names, sizes and modification times of the version's files before loading. If the files change, a failed version
    # is loaded again.
    files: tuple = ()
    _requests: int = 0
    _unused: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def hold(self) -> None:
        """Keeps the version loaded until `release`."""
        self._requests += 1

    def release(self) -> None:
        self._requests -= 1
        if not self._requests:
            self._unused.set()

    def __enter__(self) -> "Version":
        """Keeps the version loaded within a `with` block."""
        self.hold()
        return self

    def __exit__(self, *exception) -> None:
        self.release()

    async def unused(self) -> None:
        """Waits until no request uses the version."""
        while self._requests:
            self._unused.clear()
            await self._unused.wait()


class Versions:
    """Loads and unloads the versions of a model. All methods run in the event loop; loading runs in threads.
    `load`: loads the version in a folder and warms the version up; runs in a thread.
    `on_load`: called after each attempt to load a version, with the model's folder, the seconds that the attempt took,
      and whether the attempt succeeded."""

    def __init__(
        self,
        model: str,
        folder: str,
        load: Callable[[str], Servable],
        executor: Executor,
        on_load: Callable[[str, float, bool], None] = lambda folder, seconds, succeeded: None,
    ):
        self.model = model
        self.folder = folder
        self._load = load
        self._executor = executor
        self._on_load = on_load
        self._versions: dict[int, Version] = {}
        self._newest: int | None = None
        self._tasks: set[asyncio.Task] = set()  # the active loads and unloads

    def all(self) -> list[Version]:
        """Returns all versions, newest first."""
        return [self._versions[number] for number in sorted(self._versions, reverse=True)]

    def get(self, number: int) -> Version | None:
        return self._versions.get(number)

    def latest(self) -> Version | None:
        return next((version for version in self.all() if version.state == State.AVAILABLE), None)

    async def update(self) -> None:
        """Searches the model's folder once, and starts to load the newest version; does not wait for the load."""
        folders = await self._run(numbers_in, self.folder)
        if folders is None:  # a network folder can be temporarily unreadable
            return
        self._newest = max(folders, default=None)
        if self._newest is not None:
            await self._ensure_loaded(self._newest, os.path.join(self.folder, folders[self._newest]))
        self._unload_others()

    async def settled(self) -> None:
        """Waits for the end of all loads and unloads."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Unloads each version after the version's last request, and waits for the end of all loads."""
        self._newest = None
        self._unload_others()
        await self.settled()

    async def _run(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    async def _ensure_loaded(self, number: int, folder: str) -> None:
        existing = self._versions.get(number)
        if existing and existing.state != State.END:
            return
        files = await self._run(_files, folder)
        if existing and existing.error and existing.files == files:
            return
        version = self._versions[number] = Version(self.model, number, folder, State.LOADING, files=files)
        self._start(self._finish_loading(version))

    def _start(self, coroutine: Coroutine) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish_loading(self, version: Version) -> None:
        start, number = time.monotonic(), version.number
        logging.info("loading %s version %d from %s", self.model, number, version.folder)
        try:
            version.servable = await self._run(self._load, version.folder)
        except Exception as error:
            version.state, version.error = State.END, from_exception(error)
            logging.error("%s version %d cannot be loaded: %s", self.model, number, version.error.message)
        else:
            version.state = State.AVAILABLE
            logging.info("serving %s version %d", self.model, number)
        self._on_load(self.folder, time.monotonic() - start, version.error is None)
        self._unload_others()

    def _unload_others(self) -> None:
        """Unloads all versions except for the newest, as soon as the newest is available."""
        newest = self._versions.get(self._newest)
        if self._newest is None or (newest and newest.state == State.AVAILABLE):
            for version in self._versions.values():
                if version is not newest and version.state == State.AVAILABLE:
                    version.state = State.UNLOADING
                    self._start(self._finish(version))

    async def _finish(self, version: Version) -> None:
        await version.unused()
        servable, version.servable = version.servable, None
        await self._run(servable.close)
        version.state = State.END
        logging.info("unloaded %s version %d", version.model, version.number)
        ended = [number for number, each in sorted(self._versions.items()) if each.state == State.END]
        for number in ended[:-_KEPT_ENDED]:
            del self._versions[number]


def numbers_in(base_path: str) -> dict[int, str] | None:
    """Maps the version numbers in a model's folder to folder names; None if the model's folder is unreadable."""
    try:
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(base_path)]
    except (tf.errors.OpError, OSError) as error:
        logging.log_every_n_seconds(logging.WARNING, "%s cannot be read: %s", 60, base_path, error)
        return None
    # "007" and "7" are the same version number. The name that sorts first is used.
    digits = sorted((name for name in names if name.isascii() and name.isdigit() and len(name) <= 18), reverse=True)
    return {int(name): name for name in digits}


def _files(folder: str) -> tuple:
    """Returns names, sizes and modification times of a folder's files, to detect changes."""
    files = []
    try:
        for parent, _, names in tf.io.gfile.walk(folder):
            for name in names:
                facts = tf.io.gfile.stat(os.path.join(parent, name))
                files.append((parent, name, facts.length, facts.mtime_nsec))
    except (tf.errors.OpError, OSError):
        pass  # files appear and disappear while the user copies a folder; the next call finds the change
    return tuple(sorted(files))
