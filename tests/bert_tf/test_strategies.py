"""Every strategy by its flags; several replicas and several machines train as one device does."""

import concurrent.futures
import dataclasses
import json
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import strategies, workers
from bert_tf.classifier_run import run_classifier
from bert_tf.command_line import parse
from bert_tf.pretraining_run import run_pretraining
from bert_tf.settings import ClassifierSettings, DeviceSettings, PretrainingSettings
from tfrecords.errors import InputError


@pytest.mark.parametrize(
    ("kind", "made", "replicas"),
    [("off", tf.distribute.Strategy, 1), ("one_device", tf.distribute.OneDeviceStrategy, 1),
     ("mirrored", tf.distribute.MirroredStrategy, 2)],
)  # fmt: skip
def test_strategies_by_flag(kind, made, replicas):
    strategy = strategies.make_strategy(dataclasses.replace(DeviceSettings(), distribution_strategy=kind))
    assert isinstance(strategy, made) and strategy.num_replicas_in_sync == replicas


@pytest.mark.parametrize("config", ["", "{}"])
def test_a_forgotten_strategy_beside_tf_config_is_said(monkeypatch, caplog, config):
    monkeypatch.setenv("TF_CONFIG", config)
    strategies.make_strategy(DeviceSettings())
    assert ("TF_CONFIG plays no part" in caplog.text) == bool(config)


@pytest.mark.parametrize(
    ("micro_batches", "rows", "message"),
    [(1, 7, "--train_batch_size=7: must be a multiple of the 2 replicas"),
     (3, 8, "--train_batch_size=8: must be a multiple of the 2 replicas times 3 micro-batches")],
)  # fmt: skip
def test_a_batch_that_cannot_be_shared_is_refused(micro_batches, rows, message):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    strategies.check_batch_size(strategy, micro_batches, train_batch_size=12)
    with pytest.raises(InputError, match=message):
        strategies.check_batch_size(strategy, micro_batches, train_batch_size=rows)


FLAGS = (
    "--max_seq_length=32", "--max_predictions_per_seq=5", "--do_train", "--do_eval", "--train_batch_size=8",
    "--eval_batch_size=8", "--max_eval_steps=1000", "--num_train_steps=50", "--num_warmup_steps=10",
    "--learning_rate=1e-3", "--save_checkpoints_steps=20", "--iterations_per_loop=1",
)  # fmt: skip


def flags(runs, output_dir, *more: str) -> list[str]:
    """Pre-training without dropout, whose masks would depend on the replica."""
    data = (f"--bert_config_file={runs}/config.json", f"--input_file={runs}/32.tfrecord", f"--output_dir={output_dir}")
    return [*data, *FLAGS, *more]


def figures(output_dir, split: str = "train") -> dict[int, dict]:
    """Figures by step; of a step that was trained twice, the later ones."""
    entries = map(json.loads, (output_dir / "metrics.jsonl").read_text().splitlines())
    return {entry["step"]: entry for entry in entries if entry["split"] == split}


def assert_trained_alike(output_dir, alone, evaluated) -> None:
    """Every step's losses, and those of evaluations, which are over all rows once."""
    for split, steps in (("train", range(1, 51)), ("eval", evaluated)):
        got, expected = figures(output_dir, split), figures(alone, split)
        assert list(got) == list(steps)
        for step, entry in got.items():
            for name in ("masked_lm_loss", "next_sentence_loss", "masked_lm_accuracy"):
                np.testing.assert_allclose(
                    entry[name], expected[step][name], rtol=1e-5, err_msg=f"{split} {name} {step}"
                )


@pytest.fixture(scope="module")
def alone(runs, tmp_path_factory):
    """Folder of a run on one device."""
    folder = tmp_path_factory.mktemp("alone")
    run_pretraining(parse(PretrainingSettings, flags(runs, folder, "--distribution_strategy=one_device")))
    assert len({entry["loss"] for entry in figures(folder).values()}) == 50
    return folder


def test_two_replicas_with_micro_batches_train_like_one_device(runs, alone, tmp_path):
    more = ("--distribution_strategy=mirrored", "--gradient_accumulation_steps=2", "--nodo_eval")
    run_pretraining(parse(PretrainingSettings, flags(runs, tmp_path, *more)))
    assert_trained_alike(tmp_path, alone, [])


def test_two_replicas_train_with_dropout(runs, alone, tmp_path):
    more = (f"--bert_config_file={runs}/dropout.json", "--distribution_strategy=mirrored", "--nodo_eval")
    run_pretraining(parse(PretrainingSettings, flags(runs, tmp_path, *more)))
    got, without = ([entry["loss"] for entry in figures(folder).values()] for folder in (tmp_path, alone))
    assert got[0] != without[0] and np.mean(got[-5:]) < np.mean(got[:5]) - 0.2


# the script, whose first worker is killed in the midst of its step 25
KILLED = """
import os, signal
from bert_tf import run_pretraining, training
update = training.Progress.update
def killed(self, step, figures):
    update(self, step, figures)
    if step == 25:
        os.kill(os.getpid(), signal.SIGKILL)
training.Progress.update = killed
run_pretraining.run()
"""


def two_workers(script: list[str], flags: list[str]) -> list[subprocess.CompletedProcess]:
    """Runs a script in two processes that are the workers of one training."""
    with socket.create_server(("", 0)) as a, socket.create_server(("", 0)) as b:
        hosts = ",".join(f"127.0.0.1:{server.getsockname()[1]}" for server in (a, b))
    flags = [*flags, "--distribution_strategy=multi_worker_mirrored", f"--worker_hosts={hosts}"]
    commands = [[sys.executable, *script, *flags, f"--task_index={index}"] for index in range(2)]
    with concurrent.futures.ThreadPoolExecutor() as both:
        return list(
            both.map(lambda command: subprocess.run(command, capture_output=True, text=True, timeout=900), commands)
        )


def test_two_machines_train_like_one_device_also_after_one_was_killed(runs, alone, tmp_path):
    given = flags(runs, tmp_path)
    first, other = two_workers(["-c", KILLED], [*given, "--nodo_eval"])
    assert first.returncode == -signal.SIGKILL
    assert other.returncode == 1 and "Traceback" not in other.stderr, other.stderr
    assert "error: worker 0 has stopped; its log says why; start all workers again" in other.stderr
    assert max(figures(tmp_path)) == 25
    for done in two_workers(["-m", "bert_tf.run_pretraining"], given):
        assert done.returncode == 0, done.stderr
    assert figures(tmp_path, "start").keys() == {0, 20}, "it went on from the checkpoint"
    assert_trained_alike(tmp_path, alone, [20, 40, 50])
    # what only the first one may write is there once
    assert len(list((tmp_path / "train").iterdir())) == 2, "one process a start has written summaries"


def test_two_machines_fine_tune_with_dropout_and_evaluate_and_predict_together(runs, vocab_file, tmp_path):
    for split, rows in (("train", 40), ("dev", 21), ("test", 9)):
        lines = [f"all of {n}\tyes" if n % 3 else f"the of {n}\tno" for n in range(rows)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    out = tmp_path / "out"
    given = [
        f"--data_dir={tmp_path}", "--task_name=tsv", f"--vocab_file={vocab_file}", f"--output_dir={out}",
        f"--bert_config_file={runs}/dropout.json", "--max_seq_length=16", "--train_batch_size=8", "--eval_batch_size=4",
        "--predict_batch_size=4", "--learning_rate=1e-2", "--num_train_epochs=8", "--do_train", "--do_eval",
    ]  # fmt: skip
    for done in two_workers(["-m", "bert_tf.run_classifier"], [*given, "--do_predict"]):
        assert done.returncode == 0, done.stderr
    results = dict(line.split(" = ") for line in (out / "eval_results.txt").read_text().splitlines())
    assert results["global_step"] == "40" and float(results["eval_accuracy"]) == 1.0
    assert len((out / "test_results.tsv").read_text().splitlines()) == 9
    again = run_classifier(parse(ClassifierSettings, [*given, "--nodo_train"]))
    np.testing.assert_allclose(again["loss"], float(results["eval_loss"]), rtol=1e-5)


@pytest.fixture
def multi_worker(monkeypatch):
    """Settings of a worker, and what its TF_CONFIG says."""

    def make(config="", **changes):
        monkeypatch.setenv("TF_CONFIG", config if isinstance(config, str) else json.dumps(config))
        return dataclasses.replace(DeviceSettings(), distribution_strategy="multi_worker_mirrored", **changes)

    return make


def test_a_cluster_is_described_by_flags_or_by_tf_config(multi_worker):
    by_flags = workers.describe(multi_worker(worker_hosts="a:1,b:2", task_index=1))
    assert (by_flags.hosts, by_flags.index) == (["a:1", "b:2"], 1)
    config = {"cluster": {"chief": ["c:1"], "worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    by_config = workers.describe(multi_worker(config))
    assert (by_config.hosts, by_config.index) == (["c:1", "a:1", "b:2"], 2)
    config["task"] = {"type": "chief", "index": 0}
    assert workers.describe(multi_worker(config)).index == 0


@pytest.mark.parametrize(
    ("config", "flags", "message"),
    [
        ("", {}, "multi_worker_mirrored needs --worker_hosts=.* or TF_CONFIG"),
        ("{", {}, "TF_CONFIG=.*cannot be read"),
        ("[]", {}, "TF_CONFIG=.*cannot be read"),
        ({"cluster": {"worker": ["a:1"]}}, {}, "TF_CONFIG=.*cannot be read .KeyError: 'task'"),
        ({"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}, {}, "only chief and worker train"),
        ({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}, {}, "its index is 2"),
        ("{}", {"worker_hosts": "a:1", "task_index": 0}, "--worker_hosts contradicts TF_CONFIG"),
    ],
)
def test_a_cluster_that_is_described_badly_is_refused(multi_worker, config, flags, message):
    with pytest.raises(InputError, match=message):
        strategies.make_strategy(multi_worker(config, **flags))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--worker_hosts=a:1", "--task_index=0"],
        ["--distribution_strategy=multi_worker_mirrored", "--worker_hosts=a:1"],
        ["--distribution_strategy=multi_worker_mirrored", "--task_index=0"],
        ["--gradient_accumulation_steps=0"],
    ],
)
def test_flags_of_strategies_that_contradict_each_other_are_refused(arguments):
    with pytest.raises(InputError):
        parse(DeviceSettings, arguments)


def test_another_error_of_tensorflow_is_not_taken_for_a_lost_worker():
    with pytest.raises(tf.errors.InternalError), workers.clear_errors():
        raise tf.errors.InternalError(None, None, "something else")
    with pytest.raises(InputError, match="worker 1 has stopped"), workers.clear_errors():
        raise tf.errors.InternalError(None, None, "Collective ops is aborted by: /job:worker/replica:0/task:1 is gone")


def test_workers_that_do_not_share_one_folder_are_refused(tmp_path, monkeypatch):
    strategy = object.__new__(tf.distribute.MultiWorkerMirroredStrategy)
    monkeypatch.setattr(workers, "_SECONDS_FOR_A_FILE", 0.0)
    monkeypatch.setattr(workers, "_of_all", lambda strategy, number: [20, number])
    workers.check_same_folder(strategy, "runs", 20)
    with pytest.raises(InputError, match="--output_dir=runs: its latest checkpoint is of step 20, 0 on the workers 0"):
        workers.check_same_folder(strategy, "runs", 0)
    with pytest.raises(InputError, match="run.json, which is not to be seen here"):
        workers.wait_for_chief(strategy, str(tmp_path / "run.json"))
    (tmp_path / "run.json").write_text("{}")
    workers.wait_for_chief(strategy, str(tmp_path / "run.json"))
