"""Clients that hold connections without asking, ask without an end, or do not read their answers."""

import contextlib
import socket
import threading
import time

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import predict_pb2

from export.serve.settings import ServeSettings
from tests.export.serving.models import halves, write_model
from tests.export.serving.running import running
from tfrecords.errors import InputError

PATH = "/v1/models/default:predict"
IDLE, MOST = 0.8, 6
# HTTP/2: the client's preface and empty settings; then a header block without its end.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
HALF_A_HEADER = b"\0\0\1\1\0\0\0\0\1\x83"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    base = tmp_path_factory.mktemp("m")
    write_model(base, 1)
    return base


@pytest.fixture(scope="module")
def server(base):
    flags = [f"--max_connections={MOST}", f"--idle_timeout_seconds={IDLE}", "--rest_api_timeout_in_ms=1500"]
    with running(f"--model_base_path={base}", *flags) as started:
        yield started


def connect(port: int, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.sendall(sent)
    return client


def seconds_until_closed(client: socket.socket, drip: bytes = b"") -> float:
    """Reads until the server closes, and sends bytes again and again meanwhile."""
    begin, over = time.monotonic(), threading.Event()

    def drop_by_drop():
        with contextlib.suppress(OSError):
            while drip and not over.wait(0.05):
                client.sendall(drip)

    sender = threading.Thread(target=drop_by_drop)
    sender.start()
    with contextlib.suppress(ConnectionError):
        while client.recv(1 << 16):
            pass
    over.set()
    sender.join()
    client.close()
    return time.monotonic() - begin


@pytest.mark.parametrize("sent", [b"", b"POST /v1/models/default:predict HTTP/1.1\r\nHost: x\r\nX: "])
def test_idle_connections_and_slow_headers_end(server, sent):
    assert IDLE * 0.9 < seconds_until_closed(connect(server.rest_port, sent), b"y" if sent else b"") < IDLE + 3


def test_a_connection_idles_from_its_last_answer(server):
    client = connect(server.rest_port)
    for _ in range(3):
        time.sleep(IDLE * 0.6)
        client.sendall(b"GET /v1/models/default HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(9000).startswith(b"HTTP/1.1 200 ")
    assert IDLE * 0.9 < seconds_until_closed(client) < IDLE + 3


def test_slow_bodies_end(server):
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n".encode()
    client = connect(server.rest_port, head)
    assert 1.3 < seconds_until_closed(client, b" ") < 5


def test_clients_that_do_not_read_are_dropped_and_free_their_place(base):
    """The answer is larger than what the sockets hold."""
    limits = ["--max_requests_in_flight=1", "--max_request_rows=1000000", "--rest_api_timeout_in_ms=6000"]
    with running(*limits, f"--model_base_path={base}") as server:
        body = b'{"instances": [' + b",".join([b"0.123456789"] * 1_000_000) + b"]}"
        client = connect(server.rest_port)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.sendall(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        assert client.recv(13) == b"HTTP/1.1 200 "
        assert server.post(PATH, {"instances": [1.0]})[0] == 503
        begin = time.monotonic()
        while server.post(PATH, {"instances": [1.0]})[0] == 503:
            assert time.monotonic() - begin < 20
            time.sleep(0.05)
        received = 0
        with contextlib.suppress(ConnectionError):
            while part := client.recv(1 << 20):
                received += len(part)
        assert received < 10_000_000, "not the whole answer"
        client.close()


def test_more_connections_close_those_that_have_waited_longest(server):
    clients = [connect(server.rest_port, b"POST / HTTP/1.1\r\n") for _ in range(3 * MOST)]
    assert server.post(PATH, {"instances": [1.0]}) == (200, {"predictions": halves([1.0])})
    assert seconds_until_closed(clients[0]) < IDLE / 2, "the first is closed, not the last"
    for client in clients:
        client.close()


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(server):
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 20\r\n\r\n".encode()
    client = connect(server.rest_port, head)
    assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sendall(b'{"instances": [1.0]}')
    assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
    client.close()


@pytest.mark.parametrize("sent", [b"", HELLO, HELLO + HALF_A_HEADER])
def test_grpc_connections_without_a_request_end(server, sent):
    assert seconds_until_closed(connect(server.grpc_port, sent)) < IDLE + 5


def test_a_grpc_request_that_never_arrives_ends(server):
    never = threading.Event()

    def no_messages():
        never.wait(30)
        yield from ()

    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.stream_unary(
            "/tensorflow.serving.PredictionService/Predict",
            request_serializer=predict_pb2.PredictRequest.SerializeToString,
            response_deserializer=predict_pb2.PredictResponse.FromString,
        )
        with pytest.raises(grpc.RpcError) as raised:
            call(no_messages(), timeout=20)
        never.set()
    assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert raised.value.details() == "The request did not arrive completely in time"
    np.testing.assert_array_equal(server.predict("default", x=np.ones(1, np.float32))["y"], [1.5])


def test_further_grpc_connections_are_refused(base):
    flags = ["--max_connections=3", "--idle_timeout_seconds=30", f"--model_base_path={base}"]
    with running(*flags, "--grpc_channel_arguments=grpc.max_connection_idle_ms=1000") as server:
        np.testing.assert_array_equal(server.predict("default", x=np.ones(1, np.float32))["y"], [1.5])
        clients = [connect(server.grpc_port, HELLO) for _ in range(8)]
        time.sleep(0.3)
        closed = 0
        for client in clients:
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                closed += client.recv(9000) == b""
        assert closed >= 5
        assert seconds_until_closed(connect(server.grpc_port, b"")) < 1
        for client in clients:
            client.close()
        time.sleep(0.3)
        np.testing.assert_array_equal(server.predict("default", x=np.ones(1, np.float32))["y"], [1.5])


def test_grpc_arguments_are_checked():
    settings = ServeSettings(model_base_path="m", grpc_channel_arguments="grpc.a=5, grpc.b=x,")
    assert settings.channel_arguments == {"grpc.a": 5, "grpc.b": "x"}
    with pytest.raises(InputError, match="--grpc_channel_arguments=grpc.a: give name=value"):
        ServeSettings(model_base_path="m", grpc_channel_arguments="grpc.a")
