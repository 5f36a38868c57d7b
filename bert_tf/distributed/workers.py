"""Waits for the workers on several machines, connects them, compares their settings, and reports a lost worker.

All workers run the same script with the same flags and the same ordered list of workers. The first worker is the
chief, and only the chief writes files.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf
from absl import logging

from bert_tf.core import identity
from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items
from bert_tf.settings import DeviceSettings

_SECONDS_FOR_A_WORKER = 3600.0
_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_FOR_A_FILE = 60.0


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


def join(settings: DeviceSettings, num_gpus: int) -> tf.distribute.Strategy:
    """Waits for the other workers, and makes the strategy over all workers.
    `settings`: settings of this worker; if `worker_hosts` is empty, TF_CONFIG in the environment describes the workers.
    `num_gpus`: number of GPUs of this machine to use; 0 for the CPU."""
    cluster = describe(settings)
    wait_for_all(cluster)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": cluster.hosts}),
        task_type="worker",
        task_id=cluster.index,
        num_accelerators={"GPU": num_gpus},
        rpc_layer="grpc",
    )
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except tf.errors.OpError as error:
        reason = str(error).split("\n")[0]
        raise InputError(
            f"{cluster.name(cluster.index)}: cannot connect to the other workers ({reason}); start all workers again"
        ) from error
    writer = "this worker writes" if cluster.index == 0 else "worker 0 writes"
    logging.info("%s of %d workers; %s all files", cluster.name(cluster.index), len(cluster.hosts), writer)
    if threading.current_thread() is threading.main_thread():
        # Restore Python's handler, because TensorFlow takes over SIGTERM when it connects to other workers.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    check_same_facts(strategy, {f"flag --{name}": value for name, value in shared_settings(settings).items()})
    return strategy


def describe(settings: DeviceSettings) -> Cluster:
    """Returns the cluster that the flags, or without flags TensorFlow's TF_CONFIG, describe."""
    config = os.environ.get("TF_CONFIG", "")
    if settings.worker_hosts:
        return Cluster(list(items(settings.worker_hosts)), settings.task_index, "--worker_hosts", "--task_index")
    if not config:
        raise InputError(
            "--distribution_strategy=multi_worker_mirrored needs --worker_hosts=host:port,host:port and --task_index, "
            "or TF_CONFIG in the environment"
        )
    try:
        entries = json.loads(config)
        jobs, task = entries["cluster"], entries["task"]
        kind, index = task["type"], int(task["index"])
        chiefs, others = list(jobs.get("chief", [])), list(jobs.get("worker", []))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"TF_CONFIG={config}: cannot be read ({type(error).__name__}: {error}); it must look like "
            '{"cluster": {"worker": ["host:port", "host:port"]}, "task": {"type": "worker", "index": 0}}'
        ) from error
    if kind not in ("chief", "worker") or set(jobs) - {"chief", "worker", "evaluator"}:
        raise InputError(
            f"TF_CONFIG: the task has the type {kind!r}, and the cluster has the types {', '.join(sorted(jobs))}; only "
            "the types chief and worker can train"
        )
    return Cluster([*chiefs, *others], index + (len(chiefs) if kind == "worker" else 0), "TF_CONFIG", "its index")


def wait_for_all(cluster: Cluster) -> None:
    """Waits until all workers have started. Each worker listens on its port, and tries the ports of the others until
    each has answered once. TensorFlow itself waits up to an hour for missing workers, without any message, and blocks
    signals.
    Raises InputError: the own port cannot be used, or a worker has not answered within an hour."""
    start, next_line = time.monotonic(), 0.0
    with _listening(cluster):
        missing = {index: "" for index in range(len(cluster.hosts)) if index != cluster.index}
        while missing := {index: reason for index in missing if (reason := _why_silent(cluster.hosts[index]))}:
            who = ", ".join(f"{cluster.name(index)} ({reason})" for index, reason in missing.items())
            waited = time.monotonic() - start
            if waited > _SECONDS_FOR_A_WORKER:
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


def shared_settings(settings: DeviceSettings) -> dict:
    """Returns the settings that must be the same on all workers."""
    shared = [field.name for field in dataclasses.fields(settings) if not field.metadata["per_worker"]]
    return {name: getattr(settings, name) for name in shared}


def check_same_facts(strategy: tf.distribute.Strategy, facts: Mapping[str, object]) -> None:
    """Checks, before anything is written, that all workers would train the same model on the same data.
    `strategy`: strategy over all workers. All workers call this function.
    `facts`: values that must be the same on all workers and can be written as JSON. The keys are names for messages,
      and are the same on all workers."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    different = []
    for name, fact in facts.items():
        every = _of_all(strategy, int(identity.id_of(fact)[:14], 16))
        if len(set(every)) > 1:
            others = [str(worker) for worker, value in enumerate(every) if value != every[0]]
            different.append(f"the {name} of worker {', '.join(others)}")
    if different:
        raise InputError(
            f"{'; '.join(different)} differs from worker 0; give all workers the same flags and the same files"
        )


def check_same_folder(strategy: tf.distribute.Strategy, output_dir: str, trained_steps: int) -> None:
    """Checks, before anything is written, that all workers see the same latest checkpoint."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    steps = _of_all(strategy, trained_steps)
    if len(set(steps)) > 1:
        raise InputError(
            f"--output_dir={output_dir}: its latest checkpoint has step {', '.join(map(str, steps))} on workers "
            f"0 to {len(steps) - 1}; give one folder that all workers share"
        )


def wait_for_chief(strategy: tf.distribute.Strategy, path: str) -> None:
    """Waits until the chief has also called this function, and then checks that this worker sees the chief's file."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    _of_all(strategy, 0)
    deadline = time.monotonic() + _SECONDS_FOR_A_FILE
    while not tf.io.gfile.exists(path):  # a shared file system may show new files late
        if time.monotonic() > deadline:
            raise InputError(
                f"--output_dir: worker 0 has written {path}, but this worker cannot see the file; "
                "give one folder that all workers share"
            )
        time.sleep(1.0)


def any_of_all(strategy: tf.distribute.Strategy, here: bool) -> bool:
    """Returns whether `here` is True on any worker. All workers must call this function at the same point."""
    return any(_of_all(strategy, here)) if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) else here


def _of_all(strategy: tf.distribute.Strategy, number: int) -> list[int]:
    every = _gatherer(strategy)(tf.constant(int(number), tf.int64)).numpy().tolist()
    return every[:: len(every) // strategy.cluster_resolver.cluster_spec().num_tasks("worker")]


@functools.cache
def _gatherer(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that gathers a scalar from all replicas. The cache prevents tracing this function again."""

    @tf.function
    def gather(own):
        def of_replica():
            return tf.distribute.get_replica_context().all_gather(tf.reshape(own, [1]), axis=0)

        return strategy.experimental_local_results(strategy.run(of_replica))[0]

    return gather


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Converts TensorFlow's errors about a lost worker into a one-line error."""
    try:
        yield
    except tf.errors.OpError as error:
        text = str(error)
        if "Collective ops is aborted by" not in text:
            raise
        lost = sorted(set(re.findall(r"/job:worker(?:/replica:0)?/task:(\d+)", text.split("aborted by", 1)[1])))
        who = f"worker {lost[0]}" if lost else "another worker"
        raise InputError(
            f"{who} has stopped; see its log for the reason; start all workers again with the same command to resume "
            "from the last checkpoint"
        ) from error
