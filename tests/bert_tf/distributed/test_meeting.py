import contextlib
import itertools
import json
import socket
import struct
import threading
import types

import pytest

from bert_tf.core.errors import InputError
from bert_tf.distributed import meeting
from bert_tf.distributed.meeting import Cluster, meet
from tests.bert_tf.ports import free_hosts
from tests.waiting import PATIENCE, wait_until


def cluster(index: int, hosts) -> Cluster:
    return Cluster(list(hosts), index, "--worker_hosts", "--task_index")


@pytest.fixture
def hosts():
    """Returns three addresses on this machine with free ports."""
    return free_hosts(3)


@pytest.fixture(autouse=True)
def _some_patience(monkeypatch):
    monkeypatch.setattr(meeting, "_PATIENCE", PATIENCE)


@pytest.fixture
def arrived(monkeypatch):
    """An event that is set when the first worker has accepted a call."""
    is_open, event = meeting._is_open, threading.Event()

    def noting(connection):
        if connection is not None:
            event.set()
        return is_open(connection)

    monkeypatch.setattr(meeting, "_is_open", noting)
    return event


class Worker(threading.Thread):
    """Meets the other workers; `outcome` is "met" or the text of the error."""

    def __init__(self, index, hosts, settings=None):
        super().__init__(daemon=True)
        self._arguments, self.outcome = (cluster(index, hosts), settings or {"learning_rate": 0.1}), ""
        self.start()

    def run(self):
        try:
            meet(*self._arguments)
            self.outcome = "met"
        except InputError as error:
            self.outcome = str(error)

    def result(self) -> str:
        self.join(2 * PATIENCE)
        return self.outcome


def call(hosts, index) -> socket.socket:
    """Connects to the first worker when it listens."""
    host, _, port = hosts[0].rpartition(":")
    connections = []

    def listens():
        with contextlib.suppress(ConnectionRefusedError):
            connections.append(socket.create_connection((host, int(port)), timeout=PATIENCE))
        return connections

    wait_until(listens)
    (connection,) = connections
    message = {"bert_tf": 1, "task": index, "hosts": hosts, "settings": {"learning_rate": 0.1}}
    connection.sendall(json.dumps(message).encode() + b"\n")
    return connection


@pytest.mark.parametrize(
    ("hosts", "index", "message"),
    [
        (["a:1", "b"], 0, "--worker_hosts: 'b' is not of the form host:port"),
        (["a:1", "b:70000"], 0, "'b:70000' is not of the form host:port"),
        (["a:1", ""], 0, "'' is not of the form host:port"),
        (["a:1", "a:1"], 0, "lists a worker twice"),
        (["a:1", "b:1"], 2, "names 2 workers, but --task_index is 2; give each worker its own index, from 0 to 1"),
        (["a:1", "b:1"], -1, "--task_index is -1"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(hosts, index, message):
    with pytest.raises(InputError, match=message):
        cluster(index, hosts)


def test_all_go_on_once_all_have_come_in_whatever_order(hosts):
    others = [Worker(index, hosts) for index in (2, 1)]
    assert not any(worker.outcome for worker in others)
    assert [worker.result() for worker in (Worker(0, hosts), *others)] == ["met"] * 3


def test_one_alone_waits_for_nobody():
    meet(cluster(0, ["localhost:1"]), {})


@pytest.mark.parametrize(("index", "missing"), [(0, "worker 1 (127"), (1, "worker 0 (127")])
def test_who_does_not_come_is_named(hosts, index, missing, caplog, monkeypatch):
    ticks = itertools.count()  # hours
    clock = types.SimpleNamespace(monotonic=lambda: 3600.0 * next(ticks), sleep=lambda seconds: None)
    monkeypatch.setattr(meeting, "time", clock)
    monkeypatch.setattr(meeting, "_PATIENCE", 3600.0)
    outcome = Worker(index, hosts[:2]).result()
    assert outcome.startswith(missing) and "has not connected within an hour" in outcome
    assert f"waiting for {missing}" in caplog.text


@pytest.mark.parametrize(
    ("theirs", "settings", "message"),
    [
        (None, {"learning_rate": 0.2}, "worker 1 has other flags than worker 0 (--learning_rate was 0.1, is 0.2)"),
        (["127.0.0.1:1"], {"learning_rate": 0.1}, "worker 1 has the worker list"),
    ],
)
def test_workers_that_were_started_differently_are_refused_on_both_sides(hosts, theirs, settings, message):
    chief = Worker(0, hosts)
    other = Worker(1, hosts[:2] + (theirs or hosts[2:]), settings)
    assert message in chief.result() and message in other.result()


def test_two_processes_in_one_place_are_refused(hosts, arrived):
    started = [Worker(0, hosts), Worker(1, hosts)]
    assert arrived.wait(PATIENCE)
    for worker in (*started, Worker(1, hosts)):
        assert "two processes are worker 1; give each process its own index" in worker.result()


def test_who_waits_is_told_that_another_one_was_refused(hosts):
    chief = Worker(0, hosts)
    with call(hosts, 2) as waiting, waiting.makefile() as answer:
        refused = Worker(1, hosts, {"learning_rate": 0.2})
        assert "worker 1 has other flags" in json.loads(answer.readline())["refused"]
    assert "worker 1 has other flags" in chief.result() and "worker 1 has other flags" in refused.result()


def test_one_that_dies_as_all_have_come_is_named(hosts, monkeypatch):
    called = threading.Event()
    monkeypatch.setattr(meeting, "_is_open", lambda connection: connection is not None and not called.set())
    chief = Worker(0, hosts)
    dying = call(hosts, 1)
    assert called.wait(PATIENCE)
    dying.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset instead of a normal end
    dying.close()
    other = Worker(2, hosts)
    assert "worker 1 (127" in chief.result() and "stopped before training started" in chief.result()
    assert other.result() == chief.result()


def test_a_port_that_is_taken_is_refused_at_once(hosts):
    for index in (0, 1):
        with socket.create_server(("", int(hosts[index].split(":")[1]))):
            assert "of this machine cannot be used (Address already in use)" in Worker(index, hosts).result()
