"""The lifecycle of the server: it loads the models, listens for requests, and finishes accepted requests on SIGTERM."""

import asyncio
import functools
import gc
import logging as python_logging
import os
import signal
import time

import grpc
from absl import logging
from aiohttp import web
from grpc_health.v1 import health

from bert_tf.core.cores import usable_cores
from bert_tf.core.errors import InputError
from export.serve import rest, rpc
from export.serve.batching import Alone, Batcher
from export.serve.connections import Connections
from export.serve.metrics import Metrics
from export.serve.models import Models
from export.serve.servable import Servable, replay
from export.serve.service import Admission, Service
from export.serve.settings import ServeSettings

_BACKLOG = 1024


def serve(settings: ServeSettings) -> None:
    """Serves until SIGTERM or Ctrl-C, then answers the accepted requests and returns."""
    # aiohttp logs invalid requests. Clients must not be able to fill the log.
    python_logging.getLogger("aiohttp").setLevel(python_logging.CRITICAL)
    gc.freeze()  # shortens garbage collection after an unload from half a second to milliseconds
    asyncio.run(_serve_until_signal(settings))


async def _serve_until_signal(settings: ServeSettings) -> None:
    server, stop = Server(settings), asyncio.Event()
    try:
        await server.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()
        logging.info("stopping")
    finally:
        await server.stop()


def load(folder: str, settings: ServeSettings) -> Servable:
    """Loads a version of a model and warms it up; called in a separate thread. Warm-up requests have no time limit.
    After the warm-up, each run of the model is limited to `max_run_seconds`.
    Raises Exception: the version cannot be loaded, or a warm-up request fails."""
    threads = settings.tensorflow_intra_op_parallelism, settings.tensorflow_inter_op_parallelism
    servable = Servable(folder, *threads, settings.max_request_mb << 20)
    try:
        if settings.enable_model_warmup:
            replay(folder, servable)
    except BaseException:
        servable.close()
        raise
    servable.most_seconds = settings.max_run_seconds
    return servable


class Server:
    """The served models, and the interfaces that listen for requests."""

    def __init__(self, settings: ServeSettings):
        self._settings = settings
        metrics = Metrics()
        largest = settings.max_request_mb << 20
        self._models = Models(
            settings.folders,
            functools.partial(load, settings=settings),
            settings.file_system_poll_wait_seconds,
            metrics.on_load,
        )
        # Four of the largest requests may be in memory at the same time.
        admission = Admission(settings.max_requests_in_flight, 4 * largest)
        self._service = Service(self._models, admission, metrics, largest, settings.max_request_rows)
        cores = usable_cores()
        if settings.enable_batching:
            self._rest_runner = self._grpc_runner = Batcher(settings, metrics.on_batch)
        else:
            self._rest_runner = Alone(settings.rest_api_num_threads or 4 * cores, "rest")
            self._grpc_runner = Alone(settings.grpc_max_threads or 4 * cores, "grpc")
        self._rest: web.ServerRunner | None = None
        self._grpc: grpc.aio.Server | None = None
        self._health: health.aio.HealthServicer | None = None

    async def start(self) -> None:
        """Loads the models, then listens."""
        await self._models.start()
        if self._settings.rest_api_port:
            await self._listen_rest()
        if self._settings.port:
            await self._listen_grpc()

    async def _listen_rest(self) -> None:
        settings = self._settings
        handle = rest.Rest(self._service, self._rest_runner, settings).handle
        connections = Connections(handle, settings.max_connections)
        self._rest = web.ServerRunner(connections, shutdown_timeout=settings.shutdown_grace_seconds)
        await self._rest.setup()
        try:
            await web.TCPSite(self._rest, settings.host, settings.rest_api_port, backlog=_BACKLOG).start()
        except OSError as error:
            raise InputError(
                f"--host={settings.host} --rest_api_port={settings.rest_api_port}: {error.strerror}; "
                "give another host or port"
            ) from error
        logging.info("REST: http://%s:%d/v1/models/%s", settings.host, settings.rest_api_port, self._models.names()[0])

    async def _listen_grpc(self) -> None:
        settings = self._settings
        server = rpc.make_server(self._service, self._grpc_runner, settings)
        if settings.enable_grpc_healthcheck_service:
            self._health = await rpc.add_health(server)
        address = f"[{settings.host}]:{settings.port}" if ":" in settings.host else f"{settings.host}:{settings.port}"
        try:
            server.add_insecure_port(address)
        except RuntimeError as error:
            raise InputError(
                f"--host={settings.host} --port={settings.port}: cannot listen there; give another host or port"
            ) from error
        await server.start()
        self._grpc = server
        logging.info("gRPC: %s", address)

    async def stop(self) -> None:
        """Refuses new connections, answers the accepted requests, and unloads the models."""
        deadline = time.monotonic() + self._settings.shutdown_grace_seconds
        if self._health:
            await self._health.enter_graceful_shutdown()
        stopping = [self._rest.cleanup()] if self._rest else []
        if self._grpc:
            stopping.append(self._grpc.stop(self._settings.shutdown_grace_seconds))
        await asyncio.gather(*stopping)
        left = max(0.1, deadline - time.monotonic())
        try:
            await asyncio.wait_for(self._models.close(), left)
        except asyncio.TimeoutError:
            # A running graph cannot be stopped, and Python's normal exit would wait for the graph's thread.
            logging.error("stopped after --shutdown_grace_seconds, while a request ran or a model was loaded")
            os._exit(1)
        for runner in {self._rest_runner, self._grpc_runner}:
            runner.close()
