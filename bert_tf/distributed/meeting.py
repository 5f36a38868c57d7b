"""Makes sure that the workers on all machines have started before TensorFlow connects the workers.

TensorFlow waits up to an hour for missing workers, without any message, and blocks signals. Therefore the first worker
listens on its port until all other workers have connected, and then tells these workers to continue.
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

from bert_tf.core import identity
from bert_tf.core.errors import InputError

_PATIENCE = 3600.0  # seconds
_SECONDS_BETWEEN_LINES = 30.0
_LONGEST_MESSAGE = 1 << 16


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers, and the index of this process.

    Attributes:
      hosts: "host:port" of each worker, in the same order on all workers.
      index: index of this worker.
      hosts_from: the flag or environment variable that lists the hosts, for messages.
      index_from: the flag that gives the index, or a description of the index, for messages.
    """

    hosts: list[str]
    index: int
    hosts_from: str
    index_from: str

    def __post_init__(self):
        for host in self.hosts:
            if not re.fullmatch(r".+:\d{1,5}", host) or not 0 < self.port(host) < 1 << 16:
                raise InputError(f"{self.hosts_from}: {host!r} is not of the form host:port")
        if len(set(self.hosts)) < len(self.hosts):
            raise InputError(f"{self.hosts_from}: lists a worker twice: {', '.join(self.hosts)}; remove one")
        if not 0 <= self.index < len(self.hosts):
            raise InputError(
                f"{self.hosts_from} names {len(self.hosts)} workers, but {self.index_from} is {self.index}; "
                f"give each worker its own index, from 0 to {len(self.hosts) - 1}"
            )

    def name(self, index: int) -> str:
        return f"worker {index} ({self.hosts[index]})"

    @staticmethod
    def port(host: str) -> int:
        return int(host.rpartition(":")[2])


def meet(cluster: Cluster, settings: Mapping) -> None:
    """Waits until all workers have connected.

    Args:
      cluster: the cluster, which is the same on all workers except for the index.
      settings: values that must be the same on all workers and can be written as JSON.
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
            f"stop the process that uses it, or give another port in {cluster.hosts_from}"
        ) from error


class _Patience:
    """Logs from time to time which workers are missing, and raises an error after an hour."""

    def __init__(self):
        self._start = self._last = time.monotonic()

    def wait(self, who: str, reason: str = "") -> None:
        now = time.monotonic()
        if now - self._start > _PATIENCE:
            raise InputError(f"{who} has not connected within an hour{reason}; start it, or check the network")
        if now - self._last > _SECONDS_BETWEEN_LINES or self._last == self._start:
            logging.info("waiting for %s%s", who, reason)
            self._last = now


def _receive(server: socket.socket, cluster: Cluster, own: Mapping) -> None:
    """Accepts the connections of all other workers, and then tells all workers either to continue or to stop."""
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
                    f"{cluster.name(index)} stopped before training started; start all workers again"
                ) from error


@contextlib.contextmanager
def _refusing(callers: Mapping[int, socket.socket]) -> Iterator[None]:
    """Sends the message of an InputError in the body to the connected workers.

    The workers then stop at once, instead of waiting for an hour.
    """
    try:
        yield
    except InputError as error:
        for connection in callers.values():
            with contextlib.suppress(OSError):
                _write(connection, {"refused": str(error)})
        raise


def _differs(own: Mapping, message: Mapping, missing: list[int]) -> str:
    """Returns the reason why a worker must not join; "" if the worker may join."""
    task = message["task"]
    if message["hosts"] != own["hosts"]:
        their_hosts, own_hosts = ", ".join(message["hosts"]), ", ".join(own["hosts"])
        return (
            f"worker {task} has the worker list {their_hosts}, but worker 0 has {own_hosts}; give all workers the same "
            "list"
        )
    if task not in missing:
        return f"two processes are worker {task}; give each process its own index"
    flags = ({f"--{name}": value for name, value in each["settings"].items()} for each in (own, message))
    different = "; ".join(identity.differences(*flags))
    return f"worker {task} has other flags than worker 0 ({different}); give all workers the same" if different else ""


def _call(cluster: Cluster, own: Mapping) -> None:
    """Connects to the first worker, and waits for the reply that all workers have connected."""
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
            patience.wait(f"other workers to connect to {cluster.name(0)}")
            continue
        if not part:
            break
        received += part
    return _parsed(received)


def _read(connection: socket.socket) -> dict | None:
    """Reads a worker's message; returns None if the message is from another program."""
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
    except ValueError:  # another program uses the port
        return None
    return message if isinstance(message, dict) else None


def _write(connection: socket.socket, message: Mapping) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _is_open(connection: socket.socket | None) -> bool:
    if connection is None:
        return False
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
