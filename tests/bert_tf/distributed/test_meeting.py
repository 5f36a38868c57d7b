import itertools
import socket
import threading
import time
import types

import pytest

from bert_tf.core.errors import InputError
from bert_tf.distributed import workers
from bert_tf.distributed.workers import Cluster, wait_for_all
from tests.bert_tf.ports import free_hosts
from tests.kit import refused
from tests.waiting import PATIENCE


def cluster(index: int, hosts) -> Cluster:
    return Cluster(list(hosts), index, "--worker_hosts", "--task_index")


@pytest.fixture
def hosts():
    """Returns three addresses on this machine with free ports."""
    return free_hosts(3)


@pytest.fixture(autouse=True)
def _some_patience(monkeypatch):
    monkeypatch.setattr(workers, "_SECONDS_FOR_A_WORKER", PATIENCE)


class Worker(threading.Thread):
    """Waits for the other workers; `outcome` is "met" or the text of the error."""

    def __init__(self, index, hosts):
        super().__init__(daemon=True)
        self._cluster, self.outcome = cluster(index, hosts), ""
        self.start()

    def run(self):
        try:
            wait_for_all(self._cluster)
            self.outcome = "met"
        except InputError as error:
            self.outcome = str(error)

    def result(self) -> str:
        self.join(2 * PATIENCE)
        return self.outcome


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
    refused(message, cluster, index, hosts)


def test_all_go_on_once_all_have_started(hosts):
    """A worker that has gone on still listens, as TensorFlow does; here, the test listens instead."""
    first = [Worker(index, hosts) for index in (2, 1)]
    time.sleep(1.5)
    assert not any(worker.outcome for worker in first)
    with socket.create_server(("", int(hosts[0].split(":")[1]))):
        assert [worker.result() for worker in first] == ["met"] * 2


def test_one_alone_waits_for_nobody(hosts):
    wait_for_all(cluster(0, hosts[:1]))


@pytest.mark.parametrize(("index", "missing"), [(0, "worker 1 (127.0.0.1:"), (1, "worker 0 (127.0.0.1:")])
def test_who_does_not_come_is_named(hosts, index, missing, caplog, monkeypatch):
    ticks = itertools.count()  # hours
    clock = types.SimpleNamespace(monotonic=lambda: 3600.0 * next(ticks), sleep=lambda seconds: None)
    monkeypatch.setattr(workers, "time", clock)
    monkeypatch.setattr(workers, "_SECONDS_FOR_A_WORKER", 3600.0)
    outcome = Worker(index, hosts[:2]).result()
    assert outcome.startswith(missing) and "(Connection refused) has not started within an hour" in outcome
    assert f"waiting for {missing}" in caplog.text


def test_a_port_that_is_taken_is_refused_at_once(hosts):
    for index in (0, 1):
        with socket.create_server(("", int(hosts[index].split(":")[1]))):
            assert "of this machine cannot be used (Address already in use)" in Worker(index, hosts).result()
