"""What bounds the server: sizes, numbers, times; and how it stops."""

import concurrent.futures
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.export.serving.models import halves, write_model
from tests.export.serving.running import free_ports, running

LONG = 30_000  # steps; about a second of computation, which continues after its request has been given up


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    base = tmp_path_factory.mktemp("m")
    write_model(base, 1)
    return base


@pytest.fixture(scope="module")
def server(base):
    flags = ["--max_request_mb=1", "--max_requests_in_flight=4", "--rest_api_timeout_in_ms=300",
             "--rest_api_enable_cors_support", "--enable_grpc_healthcheck_service"]  # fmt: skip
    with running(f"--model_base_path={base}", *flags) as started:
        yield started


def slow(server, steps=LONG):
    return server.post("/v1/models/default:predict", {"signature_name": "slow", "instances": [steps]})


def test_large_bodies_are_refused_before_they_are_read(server):
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=10) as client:
        client.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    status, _, answer = server.http("POST", "/v1/models/default:predict", bomb, {"Content-Encoding": "gzip"})
    assert status in (400, 413) and b'"error"' in answer
    with pytest.raises(grpc.RpcError) as raised:
        server.predict("default", x=np.zeros(10**6, np.float32))
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_long_headers_are_refused(server):
    status, _, _ = server.http("GET", "/v1/models/default", headers={"X-Long": "x" * 100_000})
    assert status == 400


def test_deadlines(server):
    start = time.monotonic()
    status, answer = slow(server)
    assert (status, answer) == (504, {"error": "Deadline exceeded: no answer within 300 ms"})
    assert time.monotonic() - start < 3
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=10) as client:
        client.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        assert client.recv(100).startswith(b"HTTP/1.1 408 ")
    wait_for_an_answer(server)


def wait_for_an_answer(server) -> dict:
    """Returns the answer of a server that still computes what was given up."""
    end = time.monotonic() + 30
    while (answer := server.post("/v1/models/default:predict", {"instances": [1.0]}))[0] != 200:
        assert time.monotonic() < end, answer
        time.sleep(0.1)
    return answer[1]


def test_a_busy_server_refuses_and_recovers(server):
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        statuses = [status for status, _ in pool.map(lambda _: slow(server), range(12))]
    assert set(statuses) == {503, 504} and statuses.count(504) >= 4
    assert wait_for_an_answer(server) == {"predictions": halves([1.0])}


def test_pages_of_other_origins_and_health(server):
    status, headers, _ = server.http("OPTIONS", "/v1/models/default:predict")
    assert status == 200 and headers["Access-Control-Allow-Methods"] == "POST, GET"
    assert server.http("GET", "/v1/models/none")[1]["Access-Control-Allow-Origin"] == "*"
    assert server.http("GET", "/monitoring/prometheus/metrics")[0] == 404, "metrics were not enabled"
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "tensorflow.serving.PredictionService"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_run_that_takes_too_long_is_given_up_and_frees_its_thread(base):
    flags = ["--max_run_seconds=0.5", "--rest_api_num_threads=1", "--grpc_max_threads=1"]
    with running(f"--model_base_path={base}", *flags) as server:
        begin = time.monotonic()
        status, answer = slow(server, 100 * LONG)
        assert status == 504 and len(answer["error"].splitlines()) == 1
        with pytest.raises(grpc.RpcError) as raised:
            server.predict("default", "slow", steps=np.full(1, 100 * LONG, np.int32))
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert server.post("/v1/models/default:predict", {"instances": [1.0]})[0] == 200
        assert time.monotonic() - begin < 15


def start(base, *flags):
    """Starts the command; returns the process and its ports once it serves."""
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


def test_sigterm_under_load_loses_no_accepted_request(base):
    """Clients keep their connections, as in production; each stops at the first refused connection."""
    process, port, _ = start(base, "--enable_batching")
    counts = {"answered": 0, "lost": 0}
    begun = threading.Barrier(5)

    def client():
        begun.wait()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        while True:
            try:
                if connection.sock is None:
                    connection.connect()
            except OSError:
                return  # the server has stopped listening: nothing was accepted
            try:
                connection.request("POST", "/v1/models/default:predict", json.dumps({"instances": [1.0]}))
                answer = connection.getresponse()
                assert answer.status == 200 and json.loads(answer.read()) == {"predictions": [1.5]}
                counts["answered"] += 1
            except (OSError, http.client.HTTPException):
                counts["lost"] += 1
                return

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGTERM)
    for thread in threads:
        thread.join(30)
    assert process.wait(30) == 0
    assert counts["lost"] == 0 and counts["answered"] > 20


def test_a_request_that_outlasts_the_grace_does_not_keep_the_server(base):
    process, port, _ = start(base, "--shutdown_grace_seconds=1")
    body = json.dumps({"signature_name": "slow", "instances": [300 * LONG]})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/v1/models/default:predict", body)
    time.sleep(0.5)
    begin = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(15) == 1 and time.monotonic() - begin < 8
    connection.close()
