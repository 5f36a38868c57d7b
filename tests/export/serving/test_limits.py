"""The limits of the server (sizes, numbers, times), and how it stops."""

import contextlib
import gzip
import http.client
import json
import os
import signal
import socket

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc

from export.serve.errors import ServingError
from export.serve.service import Admission
from tests.export.serving.held import HELD, PATH, asking, start
from tests.export.serving.models import write_model, write_warmup
from tests.export.serving.running import Running, running
from tests.waiting import PATIENCE, wait_until


@pytest.fixture(scope="module")
def server(base):
    flags = ["--max_request_mb=1", "--max_requests_in_flight=4", "--rest_api_enable_cors_support",
             "--enable_grpc_healthcheck_service"]  # fmt: skip
    with running(f"--model_base_path={base}", *flags) as started:
        yield started


def test_large_bodies_are_refused_before_they_are_read(server):
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=PATIENCE) as client:
        client.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    status, _, answer = server.http("POST", "/v1/models/default:predict", bomb, {"Content-Encoding": "gzip"})
    assert status == 413 and b'"error"' in answer
    with pytest.raises(grpc.RpcError) as raised:
        server.predict("default", x=np.zeros(10**6, np.float32))
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_deadlines(server):
    begun = server.begun
    with asking(server, 1) as (held,):
        wait_until(lambda: server.begun > begun)
        server.advance(PATIENCE - 1)
        assert not held.done()
        server.advance(2)
        assert held.result() == (504, {"error": "no answer within 300000 ms (--rest_api_timeout_in_ms)"})
    server.release()
    wait_until(lambda: not server.requests)


def test_bodies_and_requests_count_until_they_end():
    admission = Admission(most_requests=1, most_bytes=10)
    for _ in range(2):
        with admission.body() as take, admission.request():
            take(6)
            with admission.body() as other:
                with pytest.raises(ServingError, match="too many large requests"):
                    other(5)
                with pytest.raises(ServingError, match="busy with 1 requests"), admission.request():
                    pass
    assert admission.requests == 0


def test_pages_of_other_origins_and_health(server):
    status, headers, _ = server.http("OPTIONS", "/v1/models/default:predict")
    assert status == 200 and headers["Access-Control-Allow-Methods"] == "POST, GET"
    assert server.http("GET", "/v1/models/none")[1]["Access-Control-Allow-Origin"] == "*"
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "tensorflow.serving.PredictionService"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_long_run_is_cancelled(base):
    """An abandoned request would compute for ever."""
    flags = ["--max_run_seconds=1", "--rest_api_num_threads=1", "--grpc_max_threads=1"]
    with running(f"--model_base_path={base}", *flags) as server:
        status, answer = server.post(PATH, HELD)
        assert status == 504 and len(answer["error"].splitlines()) == 1
        with pytest.raises(grpc.RpcError) as raised:
            server.predict("default", "held", x=np.zeros(1, np.int32))
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: server.post(PATH, {"instances": [1.0]})[0] == 200)


@pytest.mark.parametrize("flags", [["--rest_api_num_threads=1"], ["--enable_batching", "--num_batch_threads=1"]])
def test_no_work_goes_on_after_its_504(base, flags):
    with running(f"--model_base_path={base}", "--rest_api_timeout_in_ms=500", *flags) as server:
        assert server.post(PATH, HELD)[0] == 504
        wait_until(lambda: server.post(PATH, {"instances": [1.0]})[0] == 200)


def test_loading_and_warm_up_may_exceed_run_limit(tmp_path):
    steps = 5000  # takes at least a tenth of a second; the limit is a thousandth
    write_warmup(write_model(tmp_path, 1), "slow", "steps", [np.full(1, steps, np.int32)])
    with running(f"--model_base_path={tmp_path}", "--max_run_seconds=0.001") as server:
        assert server.states("default") == {1: "AVAILABLE"}
        assert server.post(PATH, {"signature_name": "slow", "instances": [steps]})[0] == 504


@pytest.mark.parametrize("flags", [[], ["--enable_batching"]])
def test_a_stop_answers_the_accepted_requests(base, flags):
    server = Running(f"--model_base_path={base}", "--max_batch_size=4", *flags)
    idle = socket.create_connection(("127.0.0.1", server.rest_port), timeout=PATIENCE)
    with asking(server, 4) as futures:
        wait_until(lambda: server.requests == 4)
        stopped = server.submit(server.server.stop())
        assert idle.recv(1) == b"", "the client may connect to another server"
        wait_until(lambda: not accepts(server.rest_port))
        assert not stopped.done()
        with contextlib.suppress(tf.errors.CancelledError):  # one batch ends, and the model is unloaded
            server.release(4)
        assert [future.result() for future in futures] == [(200, {"predictions": [0]})] * 4
    stopped.result(PATIENCE)
    server.end()


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
        return True
    return False


@pytest.mark.slow
def test_a_request_beyond_the_grace_is_dropped(base):
    process, port, _ = start(base, "--shutdown_grace_seconds=1")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", PATH, json.dumps(HELD))
    others = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def begun():
        others.request("POST", PATH, json.dumps({"signature_name": "begun", "instances": [0]}))
        return json.loads(others.getresponse().read()) == {"predictions": [1]}

    wait_until(begun)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE) == 1, "and the request has no end"
    connection.close()
    others.close()
