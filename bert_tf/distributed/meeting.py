"""Waits for the workers on all machines before TensorFlow connects them.

TensorFlow itself waits up to an hour for missing workers, without any message, and blocks signals.
"""

import dataclasses
import os
import re
import socket
import time

from absl import logging

from bert_tf.core.errors import InputError

_PATIENCE = 3600.0  # seconds
_SECONDS_BETWEEN_LINES = 30.0


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers, and the index of this process."""

    hosts: list[str]  # "host:port" of each worker, in the same order on all workers
    index: int  # index of this worker
    hosts_from: str  # the flag or environment variable that lists the hosts, for messages
    index_from: str  # the flag that gives the index, or a description of the index, for messages

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


def wait_for_all(cluster: Cluster) -> None:
    """Waits until all workers have started. Each worker listens on its port, and tries the ports of the others until
    each has answered once.
    Raises InputError: the own port cannot be used, or a worker has not answered within an hour."""
    start, next_line = time.monotonic(), 0.0
    with _listening(cluster):
        missing = {index: "" for index in range(len(cluster.hosts)) if index != cluster.index}
        while missing := {index: reason for index in missing if (reason := _why_silent(cluster.hosts[index]))}:
            who = ", ".join(f"{cluster.name(index)} ({reason})" for index, reason in missing.items())
            waited = time.monotonic() - start
            if waited > _PATIENCE:
                raise InputError(f"{who} has not started within an hour; start it, or check the network")
            if waited >= next_line:
                next_line = waited + _SECONDS_BETWEEN_LINES
                logging.info("waiting for %s", who)
            time.sleep(1.0)


def _listening(cluster: Cluster) -> socket.socket:
    port, both = cluster.port(cluster.hosts[cluster.index]), socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=128 + len(cluster.hosts))
    except OSError as error:
        raise InputError(
            f"{cluster.name(cluster.index)}: port {port} of this machine cannot be used ({os.strerror(error.errno)}); "
            f"stop the process that uses it, or give another port in {cluster.hosts_from}"
        ) from error


def _why_silent(host: str) -> str:
    """Returns the reason why no process answers at "host:port"; "" if one answers."""
    name, _, port = host.rpartition(":")
    try:
        socket.create_connection((name.strip("[]"), int(port)), timeout=5.0).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
