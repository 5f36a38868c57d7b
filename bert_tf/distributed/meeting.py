"""How processes on several machines find each other before TensorFlow connects them.

TensorFlow waits for the others for an hour, says nothing meanwhile, and lets no signal through. So the first
worker listens at its port until all others have called, and then lets all of them go on.
"""

import contextlib
import dataclasses
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping

from absl import logging

from tfrecords.errors import InputError

_PATIENCE = 3600.0  # seconds
_SECONDS_BETWEEN_LINES = 30.0
_LONGEST_MESSAGE = 1 << 16


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Workers and which of them this process is.

    Attributes:
      hosts: "host:port" of each, in an order that all of them agree on.
      index: of this one.
      hosts_from: where the hosts were given, for messages.
      index_from: where the index was given, for messages.
    """

    hosts: list[str]
    index: int
    hosts_from: str
    index_from: str

    def __post_init__(self):
        for host in self.hosts:
            if not re.fullmatch(r".+:\d{1,5}", host) or not 0 < self.port(host) < 1 << 16:
                raise InputError(f"{self.hosts_from}: {host!r} is no host:port")
        if len(set(self.hosts)) < len(self.hosts):
            raise InputError(f"{self.hosts_from}: names a worker twice: {', '.join(self.hosts)}")
        if not 0 <= self.index < len(self.hosts):
            raise InputError(
                f"{self.hosts_from} names {len(self.hosts)} workers, but {self.index_from} is {self.index}; "
                f"give each worker its own, from 0 to {len(self.hosts) - 1}"
            )

    def name(self, index: int) -> str:
        """A worker as messages call it."""
        return f"worker {index} ({self.hosts[index]})"

    @staticmethod
    def port(host: str) -> int:
        """The port of a "host:port"."""
        return int(host.rpartition(":")[2])


def meet(cluster: Cluster, settings: Mapping) -> None:
    """Returns once all workers have come.

    Args:
      cluster: alike on all workers, but for its index.
      settings: what must be alike on all workers; JSON.

    Raises:
      InputError: a worker does not come within an hour, has another cluster or other settings, or has a place that
        another one has already; or the port of this worker is taken.
    """
    own = {"bert_tf": 1, "task": cluster.index, "hosts": cluster.hosts, "settings": dict(settings)}
    if len(cluster.hosts) == 1:
        return
    with _listen(cluster) as server:
        if cluster.index == 0:
            _receive(server, cluster, own)
            return
    _call(cluster, own)


def _listen(cluster: Cluster) -> socket.socket:
    port = cluster.port(cluster.hosts[cluster.index])
    both = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both)
    except OSError as error:
        raise InputError(
            f"{cluster.name(cluster.index)}: port {port} of this machine cannot be used ({os.strerror(error.errno)}); "
            f"end what uses it, or name another one in {cluster.hosts_from}"
        ) from error


class _Patience:
    """Says now and then who is waited for, and has an end."""

    def __init__(self):
        self._start = self._last = time.monotonic()

    def wait(self, who: str, reason: str = "") -> None:
        now = time.monotonic()
        if now - self._start > _PATIENCE:
            raise InputError(f"{who} has not come in an hour{reason}; start it, or check the network between")
        if now - self._last > _SECONDS_BETWEEN_LINES or self._last == self._start:
            logging.info("waiting for %s%s", who, reason)
            self._last = now


def _receive(server: socket.socket, cluster: Cluster, own: Mapping) -> None:
    """Takes the calls of all others, then lets them go on together, or tells all of them why not."""
    callers: dict[int, socket.socket] = {}
    patience = _Patience()
    server.settimeout(1.0)
    with contextlib.ExitStack() as stack, _refusing(callers):
        while missing := [i for i in range(1, len(cluster.hosts)) if not _is_open(callers.get(i))]:
            patience.wait(", ".join(map(cluster.name, missing)))
            try:
                connection = stack.enter_context(server.accept()[0])
            except TimeoutError:
                continue
            message = _read(connection)
            if message is None:
                continue
            if refusal := _differs(own, message, missing):
                with contextlib.suppress(OSError):
                    _write(connection, {"refused": refusal})
                raise InputError(refusal)
            callers[message["task"]] = connection
        for index, connection in callers.items():
            try:
                _write(connection, {"go": True})
            except OSError as error:
                raise InputError(
                    f"{cluster.name(index)} has stopped while the workers met; start all of them again"
                ) from error


@contextlib.contextmanager
def _refusing(callers: Mapping[int, socket.socket]) -> Iterator[None]:
    """Tells those who have called why there is no meeting, so that none waits for the rest of the hour."""
    try:
        yield
    except InputError as error:
        for connection in callers.values():
            with contextlib.suppress(OSError):
                _write(connection, {"refused": str(error)})
        raise


def _differs(own: Mapping, message: Mapping, missing: list[int]) -> str:
    """Why a caller may not join; "" if it may."""
    task = message["task"]
    if message["hosts"] != own["hosts"]:
        return f"worker {task} was given the workers {', '.join(message['hosts'])}, worker 0 {', '.join(own['hosts'])}"
    if task not in missing:
        return f"two processes are worker {task}; give each its own index"
    theirs = message["settings"]
    different = [
        f"--{name}={value}, worker {task} with {theirs.get(name)}"
        for name, value in own["settings"].items()
        if theirs.get(name) != value
    ]
    return f"worker 0 was started with {'; '.join(different)}; give all the same flags" if different else ""


def _call(cluster: Cluster, own: Mapping) -> None:
    """Calls the first worker until it says that all have come."""
    host, _, port = cluster.hosts[0].rpartition(":")
    patience, reason = _Patience(), ""
    while True:
        patience.wait(cluster.name(0), reason)
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5.0) as connection:
                _write(connection, own)
                reply = _reply(connection, patience, cluster)
        except OSError as error:
            reply, reason = None, f" ({error.strerror or error})"
        if reply and "refused" in reply:
            raise InputError(reply["refused"])
        if reply:
            return
        time.sleep(1.0)


def _reply(connection: socket.socket, patience: _Patience, cluster: Cluster) -> dict | None:
    connection.settimeout(1.0)
    received = b""
    while not received.endswith(b"\n") and len(received) < _LONGEST_MESSAGE:
        try:
            part = connection.recv(_LONGEST_MESSAGE)
        except TimeoutError:
            patience.wait(f"the others, who have to call {cluster.name(0)}")
            continue
        if not part:
            break
        received += part
    return _parsed(received)


def _read(connection: socket.socket) -> dict | None:
    """A caller's message; None if it is none of ours."""
    connection.settimeout(5.0)
    try:
        with connection.makefile("rb") as file:
            message = _parsed(file.readline(_LONGEST_MESSAGE))
    except OSError:
        return None
    return message if message and {"bert_tf", "task", "hosts", "settings"} <= message.keys() else None


def _parsed(line: bytes) -> dict | None:
    try:
        message = json.loads(line)
    except ValueError:  # something else answers at that port
        return None
    return message if isinstance(message, dict) else None


def _write(connection: socket.socket, message: Mapping) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _is_open(connection: socket.socket | None) -> bool:
    """Whether a caller is still there."""
    if connection is None:
        return False
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
