"""Every strategy by its flags; training on several replicas or machines equals training on one device."""

import concurrent.futures
import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import types
import weakref

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies, workers
from bert_tf.distributed.workarounds import released_graphs
from bert_tf.pretraining.engine import run_pretraining
from bert_tf.run_classifier import main as run_classifier
from bert_tf.settings import DeviceSettings, PretrainingSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests import kit
from tests.bert_tf import pretraining_runs
from tests.bert_tf.ports import free_hosts
from tests.kit import refused
from tests.tfrecords.record_files import write_file

UNLABELED = "unlabeled_data_path"
PATHS = ("train_data_path", "eval_data_path", "test_data_path", UNLABELED)


@pytest.mark.parametrize(
    ("kind", "made", "replicas"),
    [("off", tf.distribute.Strategy, 1), ("one_device", tf.distribute.OneDeviceStrategy, 1),
     ("mirrored", tf.distribute.MirroredStrategy, 2)],
)  # fmt: skip
def test_strategies_by_flag(kind, made, replicas):
    strategy = strategies.make_strategy(dataclasses.replace(DeviceSettings(), distribution_strategy=kind))
    assert isinstance(strategy, made) and strategy.num_replicas_in_sync == replicas


def test_float32_enables_onednn_unless_user_decides(monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "")  # restored when the test ends
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS")
    dataclasses.replace(DeviceSettings(), dtype="bfloat16").set_environment()
    assert "TF_ENABLE_ONEDNN_OPTS" not in os.environ
    for given, chosen in ((None, "1"), ("0", "0")):
        if given:
            monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", given)
        DeviceSettings().set_environment()
        assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == chosen


@pytest.mark.parametrize("script", ["run_classifier", "run_ner", "run_pretraining", "run_squad", "run_swag"])
def test_training_scripts_set_environment_first(script):
    class Chosen(Exception):
        pass

    class Settings:
        def set_environment(self):
            raise Chosen

    with pytest.raises(Chosen):
        importlib.import_module(f"bert_tf.{script}").main(Settings())


@pytest.mark.parametrize("config", ["", "{}"])
def test_a_forgotten_strategy_beside_tf_config_is_said(monkeypatch, caplog, config):
    monkeypatch.setenv("TF_CONFIG", config)
    strategies.make_strategy(DeviceSettings())
    assert ("ignoring TF_CONFIG" in caplog.text) == bool(config)


@pytest.mark.parametrize(
    ("micro_batches", "rows", "message"),
    [(1, 7, r"--train_batch_size=7: must be a multiple of 2 \(2 replicas\)"),
     (3, 8, r"--train_batch_size=8: must be a multiple of 6 \(2 replicas times 3 micro-batches\)")],
)  # fmt: skip
def test_a_batch_that_cannot_be_shared_is_refused(micro_batches, rows, message):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    strategies.check_batch_size(strategy, micro_batches, train_batch_size=12)
    refused(message, strategies.check_batch_size, strategy, micro_batches, train_batch_size=rows)


def test_only_the_batches_of_what_is_done_are_checked():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for made, task in ((PretrainingSettings, []), (ClassifierSettings, ["--data_dir=unused", "--task_name=own"])):
        flags = [*task, "--output_dir=unused", *(["--input_file=unused"] if made is PretrainingSettings else [])]
        evaluate = [*flags, "--do_eval", "--train_batch_size=3", "--gradient_accumulation_steps=5"]
        strategies.check_batch_sizes(strategy, parse(made, evaluate))
        refused("--train_batch_size=3", strategies.check_batch_sizes, strategy, parse(made, [*evaluate, "--do_train"]))
        with pytest.raises(InputError, match="--eval_batch_size=1"):
            strategies.check_batch_sizes(strategy, parse(made, [*evaluate, "--eval_batch_size=1"]))
    predict = parse(ClassifierSettings, [*flags, "--do_predict", "--eval_batch_size=1", "--predict_batch_size=5"])
    refused("--predict_batch_size=5", strategies.check_batch_sizes, strategy, predict)


def flags(runs, output_dir, *more: str) -> list[str]:
    """Pre-training without dropout, whose masks would depend on the replica."""
    steps = ("--num_train_steps=50", "--num_warmup_steps=10", "--save_checkpoints_steps=20", "--iterations_per_loop=1")
    do = ("--do_train", "--do_eval", "--eval_batch_size=8", "--max_eval_steps=1000")
    return pretraining_runs.flags(f"{runs}/config.json", f"{runs}/32.tfrecord", output_dir, *steps, *do, *more)


def metrics_of(output_dir, split: str = "train") -> dict[int, dict]:
    """Returns metrics by step; for a step that was trained twice, the later metrics."""
    entries = map(json.loads, (output_dir / "metrics.jsonl").read_text().splitlines())
    return {entry["step"]: entry for entry in entries if entry["split"] == split}


def assert_trained_alike(output_dir, alone, evaluated) -> None:
    """Returns the losses of every step and of the evaluations, each of which reads all rows once."""
    for split, steps in (("train", range(1, 51)), ("eval_on_training_data", evaluated)):
        got, expected = metrics_of(output_dir, split), metrics_of(alone, split)
        assert list(got) == list(steps)
        for step, entry in got.items():
            for name in ("masked_lm_loss", "next_sentence_loss", "masked_lm_accuracy"):
                np.testing.assert_allclose(
                    entry[name], expected[step][name], rtol=1e-5, err_msg=f"{split} {name} {step}"
                )


@pytest.fixture(scope="module")
def alone(runs, tmp_path_factory):
    """The folder of a run on one device."""
    folder = tmp_path_factory.mktemp("alone")
    run_pretraining(parse(PretrainingSettings, flags(runs, folder, "--distribution_strategy=one_device")))
    assert len({entry["loss"] for entry in metrics_of(folder).values()}) == 50
    return folder


@pytest.mark.slow
def test_compiled_replicas_train_like_one_device(runs, alone, tmp_path):
    more = ("--distribution_strategy=mirrored", "--gradient_accumulation_steps=2", "--enable_xla", "--nodo_eval")
    try:
        run_pretraining(parse(PretrainingSettings, flags(runs, tmp_path, *more)))
    finally:
        tf.config.optimizer.set_jit(False)
    assert_trained_alike(tmp_path, alone, [])


# Makes one strategy, since a process can be a worker only once.
ONE_STRATEGY = """
from bert_tf.distributed import strategies
def make(settings, make=strategies.make_strategy, made=[]):
    return made[0] if made else made.append(make(settings)) or made[0]
strategies.make_strategy = make
"""

# The second worker is first started with other rows, and the first worker is killed during step 25.
KILLED = (
    ONE_STRATEGY
    + """
import os, signal, sys
from bert_tf import run_pretraining
from bert_tf.core.command_line import parse
from bert_tf.pretraining import engine
from bert_tf.settings import PretrainingSettings
from bert_tf.training import loop
from bert_tf.core.errors import InputError
given = sys.argv[1:]
folder = parse(PretrainingSettings, given).output_dir
other = [f"--input_file={os.path.dirname(folder)}/other.tfrecord"] if "--task_index=1" in given else []
try:
    engine.run_pretraining(parse(PretrainingSettings, given + other))
except InputError as error:
    assert not os.path.exists(folder)
    print("refused:", error)
update = loop.TrainingProgress.update
def killed(self, step, metrics):
    update(self, step, metrics)
    if step == 25:
        os.kill(os.getpid(), signal.SIGKILL)
loop.TrainingProgress.update = killed
run_pretraining.run()
"""
)

# Pre-trains, and then fine-tunes with the flags after "then".
BOTH = (
    ONE_STRATEGY
    + """
import sys
from bert_tf.core.command_line import parse
from bert_tf.run_classifier import main as run_classifier
from bert_tf.pretraining.engine import run_pretraining
from bert_tf.settings import PretrainingSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
then = sys.argv.index("then")
workers = sys.argv[-3:]
run_pretraining(parse(PretrainingSettings, sys.argv[1:then] + workers))
run_classifier(parse(ClassifierSettings, sys.argv[then + 1:]))
"""
)


def two_workers(script: str, flags: list[str]) -> list[subprocess.CompletedProcess]:
    """Runs a script in two processes, which are the workers of one training run."""
    flags = [*flags, "--distribution_strategy=multi_worker_mirrored", f"--worker_hosts={','.join(free_hosts(2))}"]
    commands = [[sys.executable, "-c", script, *flags, f"--task_index={index}"] for index in range(2)]
    with concurrent.futures.ThreadPoolExecutor() as both:
        return list(
            both.map(lambda command: subprocess.run(command, capture_output=True, text=True, timeout=3600), commands)
        )


def classification_flags(runs, vocab_file, tmp_path) -> list[str]:
    """Fine-tunes with dropout on examples that differ by one word."""
    for split, rows in (("train", 40), ("dev", 21), ("test", 9)):
        lines = [f"all of {n}\tyes" if n % 3 else f"the of {n}\tno" for n in range(rows)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return [
        f"--data_dir={tmp_path}", "--task_name=own", f"--vocab_file={vocab_file}", f"--output_dir={tmp_path}/out",
        f"--bert_config_file={runs}/dropout.json", "--max_seq_length=16", "--train_batch_size=8", "--eval_batch_size=4",
        "--predict_batch_size=4", "--learning_rate=5e-3", "--num_train_epochs=16", "--do_train", "--do_eval",
    ]  # fmt: skip


@pytest.mark.slow
def test_two_machines_train_like_one_device(runs, alone, vocab_file, tmp_path):
    pretrained, out = tmp_path / "pretrained", tmp_path / "out"
    given = flags(runs, pretrained)
    examples = list(tf.data.TFRecordDataset(f"{runs}/32.tfrecord").as_numpy_iterator())
    write_file(f"{tmp_path}/other.tfrecord", examples[::-1])
    first, other = two_workers(KILLED, [*given, "--nodo_eval"])
    for worker in (first, other):
        assert "refused: the data of worker 1 differs from worker 0; give all" in worker.stdout, worker.stderr
    assert first.returncode == -signal.SIGKILL
    assert other.returncode == 1 and "Traceback" not in other.stderr, other.stderr
    assert "error: worker 0 has stopped; see its log for the reason; start all workers again" in other.stderr
    assert max(metrics_of(pretrained)) == 25
    classify = classification_flags(runs, vocab_file, tmp_path)
    for done in two_workers(BOTH, [*given, "then", *classify, "--do_predict"]):
        assert done.returncode == 0, done.stderr
    assert metrics_of(pretrained, "start").keys() == {0, 20}, "it resumed from the checkpoint"
    assert_trained_alike(pretrained, alone, [20, 40, 50])
    # only the first worker writes these files
    assert len(list((pretrained / "train").iterdir())) == 2, "one process a start has written summaries"
    results = dict(line.split(" = ") for line in (out / "eval_results.txt").read_text().splitlines())
    assert results["global_step"] == "80" and float(results["eval_accuracy"]) == 1.0
    assert len((out / "test_results.tsv").read_text().splitlines()) == 9
    again = run_classifier(parse(ClassifierSettings, [*classify, "--nodo_train"]))
    np.testing.assert_allclose(again["loss"], float(results["eval_loss"]), rtol=1e-5)


@pytest.fixture
def multi_worker(monkeypatch):
    """Returns the settings of a worker, and its TF_CONFIG."""

    def make(config="", **changes):
        monkeypatch.setenv("TF_CONFIG", config if isinstance(config, str) else json.dumps(config))
        return dataclasses.replace(DeviceSettings(), distribution_strategy="multi_worker_mirrored", **changes)

    return make


def test_cluster_is_read_from_flags_or_tf_config(multi_worker):
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
        ({"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}, {}, "only the types chief and worker"),
        ({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}, {}, "its index is 2"),
    ],
)
def test_a_cluster_that_is_described_badly_is_refused(multi_worker, config, flags, message):
    refused(message, strategies.make_strategy, multi_worker(config, **flags))


@pytest.mark.parametrize(
    ("script", "words", "inputs"),
    [
        ("run_classifier", ["--task_name=MRPC", "--data_dir=d"], {"data_dir", "label_file", *PATHS}),
        ("run_embeddings", ["--data_dir=d"], {"data_dir", *PATHS}),
        ("run_ner", ["--data_dir=d"], {"data_dir", "activations_dir", *PATHS}),
        ("run_squad", ["--train_file=t"], {"train_file", "predict_file", "ensemble_checkpoints", UNLABELED}),
        ("run_swag", ["--data_dir=d"], {"data_dir", *PATHS}),
        ("run_pretraining", ["--input_file=i"], {"input_file", "eval_input_file", "fill_mask_file"}),
    ],
)
def test_workers_may_differ_only_in_places(script, words, inputs):
    settings = kit.settings(script, *words, "--output_dir=o", "--do_train")
    shared = workers.shared_settings(settings)
    everywhere = {"task_index", "bert_config_file", "vocab_file", "init_checkpoint", "output_dir", "teacher"}
    assert {field.name for field in dataclasses.fields(settings)} - shared.keys() == everywhere | inputs
    assert all(getattr(settings, name) == value for name, value in shared.items())


def test_refuses_workers_without_shared_folder(tmp_path, monkeypatch):
    strategy = object.__new__(tf.distribute.MultiWorkerMirroredStrategy)
    monkeypatch.setattr(workers, "_SECONDS_FOR_A_FILE", 0.0)
    monkeypatch.setattr(workers, "_of_all", lambda strategy, number: [20, number])
    workers.check_same_folder(strategy, "runs", 20)
    with pytest.raises(InputError, match="--output_dir=runs: its latest checkpoint has step 20, 0 on workers 0"):
        workers.check_same_folder(strategy, "runs", 0)
    refused("run.json, but this worker cannot see", workers.wait_for_chief, strategy, str(tmp_path / "run.json"))
    (tmp_path / "run.json").write_text("{}")
    workers.wait_for_chief(strategy, str(tmp_path / "run.json"))


def test_python_input_is_refused_where_none_runs():
    """A replacement for a TPU strategy with a number of hosts."""
    here, pod = object.__new__(tf.distribute.TPUStrategy), object.__new__(tf.distribute.TPUStrategy)
    here._extended, pod._extended = types.SimpleNamespace(num_hosts=1), types.SimpleNamespace(num_hosts=4)
    local, remote = (parse(DeviceSettings, ["--use_tpu", f"--tpu_name={name}"]) for name in ("local", "grpc://1.2.3.4"))
    strategies.check_python_input(here, local, dynamic_masking=True, pack_sequences=True)
    strategies.check_python_input(pod, local, dynamic_masking=False, pack_sequences=False)
    strategies.check_python_input(tf.distribute.get_strategy(), DeviceSettings(), True, True)
    for strategy, settings in ((pod, local), (here, remote)):
        with pytest.raises(InputError, match="--input_file: .* make the data again without --masking=dynamic$"):
            strategies.check_python_input(strategy, settings, dynamic_masking=True, pack_sequences=False)
        with pytest.raises(InputError, match="--pack_sequences: .* remove the flag$"):
            strategies.check_python_input(strategy, settings, dynamic_masking=False, pack_sequences=True)


def traced():
    """Traces a function with a custom gradient; returns a weak reference to its graph."""
    weight = tf.Variable(1.0)

    @tf.custom_gradient
    def double(x):
        return 2.0 * x, lambda upstream: 2.0 * upstream

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = double(weight.read_value())
        return tape.gradient(loss, weight)

    assert float(gradient()) == 2.0
    return weakref.ref(gradient.get_concrete_function().graph)


def test_a_graph_with_a_custom_gradient_is_released():
    with released_graphs():
        graph = traced()
    assert graph() is None
