import socket
import threading

import pytest

from bert_tf import meeting
from bert_tf.meeting import Cluster, meet
from tfrecords.errors import InputError


def cluster(index: int, hosts) -> Cluster:
    return Cluster(list(hosts), index, "--worker_hosts", "--task_index")


@pytest.fixture
def hosts():
    """Three places of this machine whose ports were free just now."""
    with socket.create_server(("", 0)) as a, socket.create_server(("", 0)) as b, socket.create_server(("", 0)) as c:
        return [f"127.0.0.1:{server.getsockname()[1]}" for server in (a, b, c)]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(meeting, "_PATIENCE", 4.0)


class Worker(threading.Thread):
    """Meets the others; `outcome` is "met", or the error's text."""

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
        self.join(20)
        return self.outcome


@pytest.mark.parametrize(
    ("hosts", "index", "message"),
    [
        (["a:1", "b"], 0, "--worker_hosts: 'b' is no host:port"),
        (["a:1", "b:70000"], 0, "'b:70000' is no host:port"),
        (["a:1", ""], 0, "'' is no host:port"),
        (["a:1", "a:1"], 0, "names a worker twice"),
        (["a:1", "b:1"], 2, "names 2 workers, but --task_index is 2; give each worker its own, from 0 to 1"),
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
def test_who_does_not_come_is_named(hosts, index, missing, caplog):
    outcome = Worker(index, hosts[:2]).result()
    assert outcome.startswith(missing) and "has not come in an hour" in outcome
    assert f"waiting for {missing}" in caplog.text


def test_a_caller_that_has_gone_is_waited_for_again(hosts):
    chief = Worker(0, hosts)
    host, port = hosts[0].split(":")
    with socket.create_connection((host, int(port))) as gone:
        gone.sendall(b'{"bert_tf": 1, "task": 1, "hosts": %s, "settings": {"learning_rate": 0.1}}\n'
                     % str(hosts).replace("'", '"').encode())  # fmt: skip
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert Worker(2, hosts).is_alive() and chief.is_alive()
    assert Worker(1, hosts).result() == "met" and chief.result() == "met"


@pytest.mark.parametrize(
    ("theirs", "settings", "message"),
    [
        (None, {"learning_rate": 0.2}, "worker 0 was started with --learning_rate=0.1, worker 1 with 0.2"),
        (["127.0.0.1:1"], {"learning_rate": 0.1}, "worker 1 was given the workers"),
    ],
)
def test_workers_that_were_started_differently_are_refused_on_both_sides(hosts, theirs, settings, message):
    chief = Worker(0, hosts)
    other = Worker(1, hosts[:2] + (theirs or hosts[2:]), settings)
    assert message in chief.result() and message in other.result()


def test_two_processes_in_one_place_are_refused(hosts):
    chief, first = Worker(0, hosts), Worker(1, hosts)
    own = {"bert_tf": 1, "task": 1, "hosts": hosts, "settings": {"learning_rate": 0.1}}
    assert "two processes are worker 1" in meeting._differs(own, own, [2])
    assert Worker(2, hosts).result() == chief.result() == first.result() == "met"


def test_a_port_that_is_taken_is_refused_at_once(hosts):
    for index in (0, 1):
        with socket.create_server(("", int(hosts[index].split(":")[1]))):
            assert "of this machine cannot be used (Address already in use)" in Worker(index, hosts).result()
