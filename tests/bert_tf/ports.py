"""Ports at which the processes of a test meet."""

import random
import socket


def free_hosts(count: int) -> list[str]:
    """Returns addresses "127.0.0.1:port" below the ports that the system assigns, which other tests may get."""
    hosts: list[str] = []
    while len(hosts) < count:
        host = f"127.0.0.1:{random.SystemRandom().randrange(10_000, 30_000)}"
        try:
            socket.create_server(("", int(host.rpartition(":")[2]))).close()
        except OSError:
            continue
        if host not in hosts:
            hosts.append(host)
    return hosts
