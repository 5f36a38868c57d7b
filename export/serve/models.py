"""Manages all served models: applies their configuration, states their status, and finds the version for a request."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from absl import logging
from tensorflow_serving.apis import get_model_status_pb2, model_pb2
from tensorflow_serving.config import model_server_config_pb2

from export.serve.config_files import problem_of
from export.serve.errors import Code, ServingError, invalid
from export.serve.servable import Servable
from export.serve.versions import State, Version, Versions, numbers_in, status_of, wanted_of

ModelServerConfig = model_server_config_pb2.ModelServerConfig


class Models:
    """The models of a configuration. All methods run in the event loop.

    Args:
      load: loads the version in a folder and warms the version up; runs in a thread.
      poll_seconds: time between two searches for new versions; 0 means to search only when the configuration changes.
      early_labels: whether labels may name versions that are not loaded.
      on_load: see `Versions`.
    """

    def __init__(
        self,
        load: Callable[[str], Servable],
        poll_seconds: float = 1.0,
        early_labels: bool = False,
        on_load: Callable[[str, float, bool], None] = lambda folder, seconds, succeeded: None,
    ):
        self._load = load
        self._poll_seconds = poll_seconds
        self._early_labels = early_labels
        self._on_load = on_load
        # While a large model loads, the server must still search for versions of other models.
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="load")
        self._models: dict[str, Versions] = {}
        self._labels: dict[str, dict[str, int]] = {}
        self._pollers: dict[str, asyncio.Task] = {}
        self._reloading = asyncio.Lock()

    def names(self) -> list[str]:
        """Returns the names of the models."""
        return sorted(self._models)

    def latest(self, name: str) -> Version | None:
        """Returns the newest available version of a model."""
        return self._models[name].latest() if name in self._models else None

    def versions(self, name: str) -> list[Version]:
        """Returns all known versions of a model, newest first."""
        return self._models[name].all() if name in self._models else []

    async def apply(self, config: ModelServerConfig) -> None:
        """Applies a configuration, and waits until its models are loaded.

        Models that the previous configuration also lists remain available. Models that are no longer listed are
        unloaded.

        Raises:
          ServingError: the configuration is wrong, a new model cannot be loaded, or a label's version is not loaded.
        """
        if problem := problem_of(config):
            raise invalid(problem)
        async with self._reloading:
            listed = {model.name: model for model in config.model_config_list.config}
            new = [name for name in listed if name not in self._models]
            for name, model in listed.items():
                versions = self._models.get(name)
                if versions is None:
                    versions = self._models[name] = Versions(model, self._load, self._threads, self._on_load)
                versions.config = model
            removed = [self._models.pop(name) for name in set(self._models) - set(listed)]
            await asyncio.gather(*(self._models[name].update() for name in listed))
            self._poll(listed)
            for versions in removed:
                await versions.close()
            self._set_labels(listed.values())
            if missing := [name for name in new if self._models[name].latest() is None]:
                raise ServingError(Code.UNKNOWN, f"Some models did not become available: {{{', '.join(missing)}}}")

    async def close(self) -> None:
        """Unloads each model after the model's last request."""
        for poller in self._pollers.values():
            poller.cancel()
        await asyncio.gather(*(versions.close() for versions in self._models.values()))
        self._threads.shutdown(wait=False, cancel_futures=True)

    def find(self, spec: model_pb2.ModelSpec) -> Version:
        """Returns the version that a request names, or the newest available version if the request names none.

        Raises:
          ServingError: the version does not exist or is not available.
        """
        if not spec.name:
            raise invalid("ModelSpec has no name specified.")
        versions = self._models.get(spec.name)
        number = self._number(spec)
        found = versions and (versions.latest() if number is None else versions.get(number))
        if found is None or found.state != State.AVAILABLE:
            wanted = f"Latest({spec.name})" if number is None else f"Specific({spec.name}, {number})"
            raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {wanted}")
        return found

    def status(self, spec: model_pb2.ModelSpec) -> get_model_status_pb2.GetModelStatusResponse:
        """Returns the state of the version that a request names.

        If the request names no version, returns the states of all versions of the model, newest version first.

        Raises:
          ServingError: the model or version does not exist.
        """
        if not spec.name:
            raise invalid("Missing model name in request.")
        number = self._number(spec)
        known = self.versions(spec.name)
        listed = [version for version in known if number is None or version.number == number]
        if not listed:
            what = "any versions" if number is None else f"version {number}"
            raise ServingError(Code.NOT_FOUND, f"Could not find {what} of model {spec.name}")
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in listed:
            added = response.model_version_status.add(version=version.number, state=version.state)
            added.status.error_code, added.status.error_message = status_of(version)
        return response

    def _number(self, spec: model_pb2.ModelSpec) -> int | None:
        choice = spec.WhichOneof("version_choice")
        if choice == "version":
            return spec.version.value
        if choice == "version_label":
            number = self._labels.get(spec.name, {}).get(spec.version_label)
            if number is None:
                raise invalid(f"Unrecognized servable version label: {spec.version_label}")
            return number
        return None

    def _set_labels(self, models: Sequence[model_server_config_pb2.ModelConfig]) -> None:
        for model in models:
            for label, number in model.version_labels.items():
                version = self._models[model.name].get(number)
                if not self._early_labels and (version is None or version.state != State.AVAILABLE):
                    raise ServingError(
                        Code.FAILED_PRECONDITION,
                        f"Request to assign label {label} to version {number} of model {model.name}, which is not "
                        "currently available for inference",
                    )
        self._labels = {model.name: dict(model.version_labels) for model in models}

    def _poll(self, listed: Sequence[str]) -> None:
        for name in set(self._pollers) - set(listed):
            self._pollers.pop(name).cancel()
        for name in set(listed) - set(self._pollers) if self._poll_seconds else ():
            self._pollers[name] = asyncio.get_running_loop().create_task(self._poll_one(self._models[name]))

    async def _poll_one(self, versions: Versions) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                await versions.update()
            except Exception:
                logging.exception("the search for versions of %s failed; trying again", versions.config.name)


def check_reload_paths(config: ModelServerConfig, roots: Sequence[str]) -> None:
    """Checks that the folders of all models in a requested configuration are inside allowed folders.

    Args:
      config: the configuration in a request.
      roots: the allowed folders: the result of `roots_of` for the configuration at the server's start.

    Raises:
      ServingError: PERMISSION_DENIED if a model's folder is outside the allowed folders.
    """
    real_roots = [_real(root) for root in roots]
    for model in config.model_config_list.config:
        path = _real(model.base_path)
        if not any(path == root or path.startswith(root.rstrip("/") + "/") for root in real_roots):
            raise ServingError(
                Code.PERMISSION_DENIED,
                f"base_path of model {model.name} is outside the parent folders of the models given at the start; "
                "name it in --model_config_file",
            )


def _real(path: str) -> str:
    """Resolves links and `..` in a local path. A path of a remote file system without `..` stays unchanged."""
    return path if "://" in path and ".." not in path.split("/") else os.path.realpath(path)


def roots_of(config: ModelServerConfig) -> list[str]:
    """Returns the parent folders of a configuration's models."""
    return sorted({os.path.dirname(model.base_path.rstrip("/")) or "." for model in config.model_config_list.config})


def check_folders(config: ModelServerConfig) -> str:
    """Returns the first problem with the folders of the configuration at the server's start; "" if there is none."""
    for model in config.model_config_list.config:
        if not tf.io.gfile.isdir(model.base_path):
            return f"{model.base_path}: no such folder; check the path of model {model.name}"
        if tf.io.gfile.exists(os.path.join(model.base_path, "saved_model.pb")):
            return f"{model.base_path}: is itself a version; give its parent folder, and rename the version to a number"
        found = numbers_in(model.base_path)
        if found is not None and not wanted_of(found, model.model_version_policy):
            return f"{model.base_path}: no version to serve in it; a version is a folder with a number as its name"
    return ""
