"""Several machines that train one model: who they are, how they meet, and what is said where one is lost.

Each runs the same script with the same flags, and knows all of them in the same order, the first one of them
the chief, who alone writes.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf
from absl import logging

from bert_tf.distributed.meeting import Cluster, meet
from bert_tf.settings import DeviceSettings
from tfrecords.errors import InputError

_SECONDS_FOR_A_FILE = 60.0


def join(settings: DeviceSettings, num_gpus: int) -> tf.distribute.Strategy:
    """Meets the other workers and makes the strategy over all of them.

    Args:
      settings: as given to every worker; `worker_hosts` and `task_index`, or TF_CONFIG in the environment.
      num_gpus: of this machine to use; 0 for its CPU.

    Raises:
      InputError: the workers are not described as they should be, or do not come.
    """
    cluster = describe(settings)
    meet(cluster, alike(settings))
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
        raise InputError(f"{cluster.name(cluster.index)}: cannot join the others ({reason})") from error
    what = "this one writes" if cluster.index == 0 else "the first one writes"
    logging.info("%s of %d that train together; %s", cluster.name(cluster.index), len(cluster.hosts), what)
    if threading.current_thread() is threading.main_thread():
        # TensorFlow, once it knows of other workers, keeps SIGTERM to itself
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    return strategy


def describe(settings: DeviceSettings) -> Cluster:
    """The workers that the flags, or TensorFlow's TF_CONFIG, name.

    Raises:
      InputError: neither does, both do, or what they say cannot be.
    """
    config = os.environ.get("TF_CONFIG", "")
    if settings.worker_hosts and config:
        raise InputError("--worker_hosts contradicts TF_CONFIG of the environment; drop one of them")
    if settings.worker_hosts:
        return Cluster(settings.worker_hosts.split(","), settings.task_index, "--worker_hosts", "--task_index")
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
            f"TF_CONFIG={config}: cannot be read ({type(error).__name__}: {error}); it looks like "
            '{"cluster": {"worker": ["host:port", "host:port"]}, "task": {"type": "worker", "index": 0}}'
        ) from error
    if kind not in ("chief", "worker") or set(jobs) - {"chief", "worker", "evaluator"}:
        raise InputError(
            f"TF_CONFIG: a task is of type {kind!r} among {', '.join(sorted(jobs))}; only chief and worker train here"
        )
    return Cluster([*chiefs, *others], index + (len(chiefs) if kind == "worker" else 0), "TF_CONFIG", "its index")


def alike(settings: DeviceSettings) -> dict:
    """The flags that all workers must agree on; paths may differ by machine."""
    own = re.compile(r"task_index|.*_(file|dir|checkpoint|phase)")
    return {name: value for name, value in dataclasses.asdict(settings).items() if not own.fullmatch(name)}


def check_same_facts(strategy: tf.distribute.Strategy, facts: Mapping[str, object]) -> None:
    """Refuses workers that would not train the same thing; before anything is written.

    Args:
      strategy: over all workers, who all ask.
      facts: what must be alike on all of them, by the name that messages give it; JSON, of the same names everywhere.

    Raises:
      InputError: on all workers; names what differs.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    different = []
    for name, fact in facts.items():
        digest = hashlib.sha256(json.dumps(fact, sort_keys=True, default=repr).encode()).digest()
        every = _of_all(strategy, int.from_bytes(digest[:7], "big"))
        if len(set(every)) > 1:
            others = [str(worker) for worker, value in enumerate(every) if value != every[0]]
            different.append(f"the {name} of worker {', '.join(others)}")
    if different:
        raise InputError(
            f"{'; '.join(different)} is not what worker 0 has; give all of them the same flags, and copies of the "
            "same files where each has its own"
        )


def check_same_folder(strategy: tf.distribute.Strategy, output_dir: str, trained_steps: int) -> None:
    """Refuses workers whose folders hold different checkpoints; before anything is written.

    Raises:
      InputError: on all workers.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    steps = _of_all(strategy, trained_steps)
    if len(set(steps)) > 1:
        raise InputError(
            f"--output_dir={output_dir}: its latest checkpoint is of step {', '.join(map(str, steps))} on the workers "
            "0 and up; it must be one folder that all of them share"
        )


def wait_for_chief(strategy: tf.distribute.Strategy, path: str) -> None:
    """Waits until the chief has come here too, and refuses a worker that does not see the file that it has written.

    Raises:
      InputError: the file is not there.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    _of_all(strategy, 0)
    deadline = time.monotonic() + _SECONDS_FOR_A_FILE
    while not tf.io.gfile.exists(path):  # a shared disk may show it late
        if time.monotonic() > deadline:
            raise InputError(
                f"--output_dir: the first worker has written {path}, which is not to be seen here; "
                "it must be one folder that all workers share"
            )
        time.sleep(1.0)


def any_of_all(strategy: tf.distribute.Strategy, here: bool) -> bool:
    """Whether something holds on any worker; all of them ask at once."""
    return any(_of_all(strategy, here)) if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) else here


def _of_all(strategy: tf.distribute.Strategy, number: int) -> list[int]:
    """A number of each worker, in their order."""
    every = _gatherer(strategy)(tf.constant(int(number), tf.int64)).numpy().tolist()
    return every[:: len(every) // strategy.cluster_resolver.cluster_spec().num_tasks("worker")]


@functools.cache
def _gatherer(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """A scalar of each replica of all workers; traced once, since it is asked between any two loops."""

    @tf.function
    def gather(own):
        def of_replica():
            return tf.distribute.get_replica_context().all_gather(tf.reshape(own, [1]), axis=0)

        return strategy.experimental_local_results(strategy.run(of_replica))[0]

    return gather


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Turns what TensorFlow reports where another worker is lost into one line.

    Raises:
      InputError: says which one, where TensorFlow does.
    """
    try:
        yield
    except tf.errors.OpError as error:
        text = str(error)
        if "Collective ops is aborted by" not in text:
            raise
        lost = sorted(set(re.findall(r"/job:worker(?:/replica:0)?/task:(\d+)", text.split("aborted by", 1)[1])))
        who = f"worker {lost[0]}" if lost else "another worker"
        raise InputError(
            f"{who} has stopped; its log says why; start all workers again by the same command, "
            "and training goes on from the last checkpoint"
        ) from error
