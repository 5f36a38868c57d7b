"""Servers whose requests compute until the test releases them, and servers as commands."""

import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import sys
import threading

from tests.export.serving.running import free_ports

PATH = "/v1/models/default:predict"
HELD = {"signature_name": "held", "instances": [0]}


@contextlib.contextmanager
def asking(server, requests: int):
    """Sends requests that compute until the test releases them; yields their futures."""
    with concurrent.futures.ThreadPoolExecutor(requests) as pool:
        yield [pool.submit(server.post, PATH, HELD) for _ in range(requests)]


def start(base, *flags):
    """Starts the command and waits until it serves; returns the process and its ports."""
    rest_port, grpc_port = free_ports()
    command = [sys.executable, "-m", "export.serve", f"--model_base_path={base}", f"--rest_api_port={rest_port}",
               f"--port={grpc_port}", *flags]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "gRPC: 127.0.0.1:" in line:
            break
    else:
        raise AssertionError("the server does not start")
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process, rest_port, grpc_port


def resident_mb(pid: int) -> float:
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
