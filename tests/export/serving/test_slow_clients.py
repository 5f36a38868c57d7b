"""Clients that hold idle connections, send endless requests, or do not read their answers."""

import contextlib
import functools
import socket
import threading

import grpc
import numpy as np
import pytest

from bert_tf.core.errors import InputError
from export.serve.connections import Places
from export.serve.settings import ServeSettings
from tests.export.serving.held import PATH
from tests.export.serving.models import halves
from tests.export.serving.running import running
from tests.waiting import PATIENCE, wait_until

MOST = 6
# HTTP/2: the client's preface and empty settings; then a header block without its end.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
HALF_A_HEADER = b"\0\0\1\1\0\0\0\0\1\x83"


@pytest.fixture(scope="module")
def server(base):
    with running(f"--model_base_path={base}", f"--max_connections={MOST}") as started:
        yield started


def connect(port: int, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    client.sendall(sent)
    return client


def until_closed(client: socket.socket) -> bytes:
    """Reads until the server closes; returns the received bytes."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 20):
            received += part
    client.close()
    return bytes(received)


def test_slow_bodies_end(server):
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n".encode()
    client = connect(server.rest_port, head + b" ")
    wait_until(lambda: server.bodies)
    server.advance(PATIENCE * 0.6)
    client.sendall(b" ")
    server.advance(PATIENCE * 0.6)
    assert until_closed(client).startswith(b"HTTP/1.1 408 ")


def test_slow_bodies_shut_nobody_out(base):
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n ".encode()
    flags = ["--max_requests_in_flight=2", f"--max_connections={MOST}"]
    with running(f"--model_base_path={base}", *flags) as server:
        clients = [connect(server.rest_port, head) for _ in range(MOST)]
        wait_until(lambda: server.bodies == MOST)
        assert server.post(PATH, {"instances": [1.0]}) == (200, {"predictions": halves([1.0])})
        assert until_closed(clients[0]) == b"", "the one that has waited longest made room"
        for client in clients:
            client.close()


@pytest.mark.slow
def test_clients_that_do_not_read_are_dropped(base):
    """The answer exceeds the buffers of the sockets."""
    limits = ["--max_requests_in_flight=1", "--max_request_rows=1000000"]
    with running(*limits, f"--model_base_path={base}") as server:
        body = b'{"instances": [' + b",".join([b"0.123456789"] * 1_000_000) + b"]}"
        client = connect(server.rest_port)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.sendall(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        assert client.recv(13) == b"HTTP/1.1 200 "
        assert server.post(PATH, {"instances": [1.0]})[0] == 503
        server.advance(PATIENCE + 1)
        wait_until(lambda: server.post(PATH, {"instances": [1.0]})[0] == 200)
        assert len(until_closed(client)) < 10_000_000, "not the whole answer"


def test_too_many_connections_close_longest_waiting(server):
    clients = [connect(server.rest_port, b"POST / HTTP/1.1\r\n") for _ in range(3 * MOST)]
    assert server.post(PATH, {"instances": [1.0]}) == (200, {"predictions": halves([1.0])})
    assert until_closed(clients[0]) == b"", "the first is closed, not the last"
    for client in clients:
        client.close()


@pytest.mark.parametrize("sent", [b"", HELLO, HELLO + HALF_A_HEADER])
def test_grpc_connections_without_a_request_end(base, sent):
    times = "grpc.max_connection_idle_ms=500,grpc.server_handshake_timeout_ms=500"
    with running(f"--model_base_path={base}", f"--grpc_channel_arguments={times}") as server:
        until_closed(connect(server.grpc_port, sent))


@contextlib.contextmanager
def silent_calls(server, count: int):
    """Begins Predict calls over one connection without their messages; yields the calls' futures."""
    end = threading.Event()

    def no_messages():
        end.wait()
        yield from ()

    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        yield [call.future(no_messages(), timeout=PATIENCE) for _ in range(count)]
        end.set()


def test_a_grpc_request_that_never_arrives_ends(server):
    with silent_calls(server, 1) as (call,):
        wait_until(lambda: server.advance(76) or call.done())  # waits until the call has arrived and ended
    assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert call.details() == "The request did not arrive completely in time"
    np.testing.assert_array_equal(server.predict("default", x=np.ones(1, np.float32))["y"], [1.5])


def test_silent_grpc_calls_shut_nobody_out(base):
    limit, further = 4, 3
    flags = [f"--model_base_path={base}", f"--max_requests_in_flight={limit // 2}"]
    with running(*flags) as server, silent_calls(server, limit + further) as calls:
        wait_until(lambda: sum(call.done() for call in calls) >= further)
        np.testing.assert_array_equal(server.predict("default", x=np.ones(1, np.float32))["y"], [1.5])
        wait_until(lambda: sum(call.done() for call in calls) > further)
        assert {call.code().name for call in calls if call.done()} == {"UNAVAILABLE"}
        assert sum(call.done() for call in calls) == further + 1, "one more made room; the others wait on"


def test_places_go_to_those_who_waited_least():
    places, ended = Places(2), []
    for name in "ab":
        places.take(name, functools.partial(ended.append, name))
    places.arrived("a")
    places.take("c", functools.partial(ended.append, "c"))
    assert ended == ["b"], "the request of a is complete"
    places.arrived("c")
    places.take("d", functools.partial(ended.append, "d"))
    assert ended == ["b", "d"], "nobody waits"
    places.wait("c")
    places.wait("a")
    places.wait("b")
    places.take("e", functools.partial(ended.append, "e"))
    assert ended == ["b", "d", "c"] and [*places.ends] == ["a", "e"]
    for name in "ae":
        places.leave(name)
        places.arrived(name)  # the end of a client can come before its complete request is read
        places.wait(name)
    assert not places.ends and not places._complete


def test_further_grpc_connections_are_refused(base):
    def is_closed(client):
        client.setblocking(False)
        try:
            while client.recv(9000):
                pass
        except BlockingIOError:
            return False
        except ConnectionError:
            pass
        return True

    with running(f"--model_base_path={base}", "--max_connections=3") as server:
        clients = [connect(server.grpc_port, HELLO) for _ in range(8)]
        wait_until(lambda: sum(map(is_closed, clients)) == 5)
        assert until_closed(connect(server.grpc_port)) == b"", "and so is a further one"
        assert sum(map(is_closed, clients)) == 5
        for client in clients:
            client.close()
        one = server.predict("default", x=np.ones(1, np.float32))  # waits for its connection
        np.testing.assert_array_equal(one["y"], [1.5])


def test_grpc_arguments_are_checked():
    settings = ServeSettings(model_base_path="m", grpc_channel_arguments="grpc.a=5, grpc.b=x,")
    assert settings.channel_arguments == {"grpc.a": 5, "grpc.b": "x"}
    with pytest.raises(InputError, match="--grpc_channel_arguments=grpc.a: give name=value"):
        ServeSettings(model_base_path="m", grpc_channel_arguments="grpc.a")
