"""Manages all served models: starts them, states their status, and finds the version for a request."""

import asyncio
import functools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from absl import logging
from tensorflow_serving.apis import get_model_status_pb2, model_pb2

from bert_tf.core.errors import InputError
from export.serve.errors import Code, ServingError, invalid
from export.serve.servable import Servable
from export.serve.versions import State, Version, Versions, numbers_in


class Models:
    """The served models. All methods run in the event loop.
    `load`: loads the version in a folder and warms the version up; runs in a thread.
    `poll_seconds`: time between two searches for new versions; 0 means to search only once."""

    def __init__(
        self,
        folders: Mapping[str, str],
        load: Callable[[str], Servable],
        poll_seconds: float = 1.0,
        on_load: Callable[[str, float, bool], None] = lambda folder, seconds, succeeded: None,
    ):
        self._poll_seconds = poll_seconds
        # A version that never finishes to load keeps its thread, so other versions and searches need further threads.
        self._threads = ThreadPoolExecutor(256, thread_name_prefix="load")
        self._models = {name: Versions(name, folder, load, self._threads, on_load) for name, folder in folders.items()}
        self._pollers: list[asyncio.Task] = []

    def names(self) -> list[str]:
        return sorted(self._models)

    def latest(self, name: str) -> Version | None:
        return self._models[name].latest()

    async def start(self) -> None:
        """Waits until all models are loaded, and then looks for new versions regularly."""
        for versions in self._models.values():
            _check_folder(versions.folder)
        await asyncio.gather(*(versions.update() for versions in self._models.values()))
        await asyncio.gather(*(versions.settled() for versions in self._models.values()))
        for versions in self._models.values():
            if versions.latest() is None:
                failed = versions.all()[:1]
                problem = "".join(f"version {one.number} cannot be loaded: {one.error.message}" for one in failed)
                raise InputError(f"{versions.folder}: {problem or 'cannot be read; check the folder'}")
        if self._poll_seconds:
            self._pollers = [asyncio.create_task(self._poll(versions)) for versions in self._models.values()]

    async def close(self) -> None:
        """Unloads each model after the model's last request, and waits for the end of all loads."""
        for poller in self._pollers:
            poller.cancel()
        await asyncio.gather(*(versions.close() for versions in self._models.values()))
        # Wait for searches, because the process could not end before.
        end = functools.partial(self._threads.shutdown, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, end)

    def version_of(self, spec: model_pb2.ModelSpec) -> Version:
        """Returns the version that a request names, or the newest available version if the request names none.
        Raises ServingError: the version does not exist or is not available."""
        number, versions = _number(spec), self._of(spec)
        version = versions.latest() if number is None else versions.get(number)
        if version is None or version.state != State.AVAILABLE:
            what = "version" if number is None else f"version {number}"
            raise ServingError(Code.NOT_FOUND, f"no {what} of the model {spec.name} is available")
        return version

    def status(self, spec: model_pb2.ModelSpec) -> get_model_status_pb2.GetModelStatusResponse:
        """Returns the state of the version that a request names. If the request names no version, returns the states of
        all versions of the model, newest version first.
        Raises ServingError: the model or version does not exist."""
        number = _number(spec)
        listed = [version for version in self._of(spec).all() if number in (None, version.number)]
        if not listed:
            raise ServingError(Code.NOT_FOUND, f"the model {spec.name} has no version {number}")
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in listed:
            added = response.model_version_status.add(version=version.number, state=version.state)
            error = version.error or ServingError(Code.OK, "")
            added.status.error_code, added.status.error_message = error.code, error.message
        return response

    def _of(self, spec: model_pb2.ModelSpec) -> Versions:
        if not spec.name:
            raise invalid("the request names no model")
        if spec.name not in self._models:
            raise ServingError(Code.NOT_FOUND, f"no model {spec.name}; the server has {', '.join(self.names())}")
        return self._models[spec.name]

    async def _poll(self, versions: Versions) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                await versions.update()
            except Exception:
                logging.exception("the search for versions of %s failed; trying again", versions.model)


def _number(spec: model_pb2.ModelSpec) -> int | None:
    if spec.WhichOneof("version_choice") == "version_label":
        raise invalid("labels of versions are not supported; give the number of the version")
    return spec.version.value if spec.HasField("version") else None


def _check_folder(folder: str) -> None:
    if not tf.io.gfile.isdir(folder):
        raise InputError(f"{folder}: no such folder; give the folder with the versions of the model")
    if tf.io.gfile.exists(os.path.join(folder, "saved_model.pb")):
        raise InputError(f"{folder}: is itself a version; give its parent folder, and rename the version to a number")
    if numbers_in(folder) == {}:
        raise InputError(f"{folder}: no version to serve in it; a version is a folder with a number as its name")
