import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.command_line import Terminated
from bert_tf.core.errors import InputError
from bert_tf.pretraining.engine import run_pretraining
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.runs import checkpoint_folder, run_folder
from bert_tf.settings import ConversionSettings, PretrainingSettings
from bert_tf.training import loop
from bert_tf.training.interruption import Interruption
from tests import kit
from tests.bert_tf import pretraining_runs
from tests.bert_tf.finetuning.killed_run import weights
from tests.kit import refused


def settings(runs, output_dir, *more: str) -> PretrainingSettings:
    return pretraining_runs.settings(f"{runs}/dropout.json", f"{runs}/32.tfrecord", output_dir, "--do_train", *more)


def losses(output_dir) -> list[float]:
    with open(os.path.join(output_dir, "metrics.jsonl")) as file:
        return [entry["loss"] for entry in map(json.loads, file) if entry["split"] == "train"]


@pytest.mark.parametrize(
    ("num_train_steps", "most", "off_tpu", "on_tpu"),
    [(6, 1000, 1, 1), (50, 1000, 2, 2), (150, 1000, 7, 7), (150, 3, 3, 3), (10**6, 1000, 50, 1000)],
)
def test_short_run_has_enough_loops_for_curve(num_train_steps, most, off_tpu, on_tpu):
    given = types.SimpleNamespace(iterations_per_loop=most, save_checkpoints_steps=1000)
    for kind, steps in ((tf.distribute.OneDeviceStrategy, off_tpu), (tf.distribute.TPUStrategy, on_tpu)):
        assert loop._steps_per_loop(given, num_train_steps, object.__new__(kind)) == steps


def config_file(runs, folder, **changes) -> pathlib.Path:
    return kit.write(folder / "config.json", json.dumps(json.loads((runs / "dropout.json").read_text()) | changes))


@pytest.fixture(scope="module")
def finished(runs, tmp_path_factory):
    """A run of six steps with evaluation."""
    folder = tmp_path_factory.mktemp("finished")
    metrics = run_pretraining(settings(runs, folder, "--do_eval", "--eval_batch_size=8"))
    return folder, metrics


@pytest.mark.slow
def test_a_run_starts_from_another_projects_checkpoint(runs, finished, tmp_path):
    """The run then resumes and is evaluated without both."""
    convert_checkpoint(ConversionSettings(input=str(finished[0]), output=str(tmp_path / "tf1"), format="tf1"))
    start = [f"--init_checkpoint={tmp_path}/tf1/bert_model.ckpt", "--bert_config_file=", "--num_train_steps=1",
             "--num_warmup_steps=0"]  # fmt: skip
    run_pretraining(settings(runs, tmp_path / "second", *start))
    old, new = weights(finished[0] / "ckpt-6"), weights(tmp_path / "second" / "ckpt-0")
    for name in old:
        if name.startswith("model/"):
            np.testing.assert_array_equal(new[name], old[name])
    other = settings(runs, tmp_path / "third", *start)
    other = dataclasses.replace(other, bert_config_file=str(config_file(runs, tmp_path, intermediate_size=64)))
    refused(r"bert/encoder/layer_0/intermediate/dense/\w+\) has shape", run_pretraining, other)
    assert not (tmp_path / "third").exists()
    shutil.rmtree(tmp_path / "tf1")
    assert run_pretraining(settings(runs, tmp_path / "second", *start, "--num_train_steps=2", "--do_eval"))
    assert checkpoint_folder.newest_intact(str(tmp_path / "second")).step == 2
    run_pretraining(settings(runs, tmp_path / "second", *start, "--nodo_train", "--do_eval", "--max_eval_steps=1"))


@pytest.mark.slow
def test_weights_that_are_not_finite_are_refused(runs, tmp_path):
    model = BertPretrainer(BertConfig.from_json_file(f"{runs}/dropout.json"))
    model.masked_lm.transform.kernel.assign(model.masked_lm.transform.kernel * float("nan"))
    tf.train.Checkpoint(model=model).write(f"{tmp_path}/damaged")
    with pytest.raises(InputError, match="masked_lm/transform/kernel has infinite values or NaN"):
        run_pretraining(settings(runs, tmp_path / "second", f"--init_checkpoint={tmp_path}/damaged"))
    assert not (tmp_path / "second").exists()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_keeps_float32_weights(runs, tmp_path, dtype):
    try:
        run_pretraining(settings(runs, tmp_path, f"--dtype={dtype}"))
        assert keras.mixed_precision.global_policy().compute_dtype == dtype
    finally:
        keras.mixed_precision.set_global_policy("float32")
    saved = weights(tmp_path / "ckpt-6")
    assert all(v.dtype == np.float32 for n, v in saved.items() if n.startswith("model/"))
    first, last = weights(tmp_path / "ckpt-0"), saved
    name = "model/encoder/embeddings/word_embeddings/.ATTRIBUTES/VARIABLE_VALUE"
    assert np.isfinite(last[name]).all() and np.abs(first[name] - last[name]).max() > 1e-5
    assert all(np.isfinite(losses(tmp_path)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--learning_rate=2e-3", "other flags .*learning_rate was 0.001, is 0.002"),
        ("--adam_bias_correction", "other flags .*adam_bias_correction was False, is True"),
        ("--nouse_next_sentence_label", "other data .*use_next_sentence_label was True, is False"),
        ("--dtype=bfloat16", "other flags .*dtype was 'float32', is 'bfloat16'"),
        ("--num_schedule_steps=9", "other flags .*num_schedule_steps was 6, is 9"),
        ("--max_seq_length=48 --input_file={runs}/48.tfrecord", "other data .*max_seq_length was 32, is 48"),
        ("--max_predictions_per_seq=4", "masked_lm_positions has 5 values but --max_predictions_per_seq=4"),
        ("--bert_config_file={other}", "another model .*intermediate_size was 32, is 64"),
        ("--bert_config_file={other} --nodo_train --do_eval", "another model .*intermediate_size was 32, is 64"),
    ],
)
def test_refuses_folder_of_other_run_and_keeps_it(runs, finished, tmp_path, change, message):
    before = sorted(os.listdir(finished[0]))
    other = config_file(runs, tmp_path, intermediate_size=64)
    refused(message, run_pretraining, settings(runs, finished[0], *change.format(runs=runs, other=other).split()))
    assert sorted(os.listdir(finished[0])) == before


@pytest.mark.slow
def test_settings_without_effect_on_weights_may_change(runs, finished, tmp_path, caplog):
    folder = shutil.copytree(finished[0], tmp_path / "run")

    def resume(*changed: str) -> None:
        """Trains the second half again."""
        for path in [*folder.glob("ckpt-5.*"), *folder.glob("ckpt-6.*")]:
            path.unlink()
        before = len(losses(folder))
        run_pretraining(settings(runs, folder, *changed))
        assert len(losses(folder)) == before + 3 and list(folder.glob("ckpt-6.*"))

    free = (
        "--save_checkpoints_steps=5", "--iterations_per_loop=2", "--distribution_strategy=one_device",
        "--skip_non_finite_steps", "--gradient_accumulation_steps=2", "--eval_batch_size=4",
    )  # fmt: skip
    resume(*free)
    shutil.copytree(runs, tmp_path / "moved")
    resume(f"--input_file={tmp_path}/moved/32.tfrecord")
    assert "diverged" not in caplog.text


@pytest.mark.slow
def test_the_first_checkpoint_has_no_moments(runs, finished, tmp_path, monkeypatch):
    folder, seen = tmp_path / "run", []
    shutil.copytree(finished[0], folder)
    for path in [*folder.glob("ckpt-3.*"), *folder.glob("ckpt-6.*"), folder / "checkpoint"]:
        path.unlink()
    assert not [name for name in weights(folder / "ckpt-0") if name.startswith("optimizer/")]
    shown = loop.TrainingProgress
    show = shown.show
    monkeypatch.setattr(shown, "is_due", True)
    monkeypatch.setattr(shown, "show", lambda self, step, values: (seen.append(step), show(self, step, values)))
    run_pretraining(settings(runs, folder))
    assert losses(folder)[-6:] == pytest.approx(losses(finished[0]), rel=1e-4)
    assert seen[0] == 1 and {3, 6} < set(seen), "progress appears inside of loops too"


def test_a_damaged_checkpoint_is_skipped_and_kept(runs, finished, tmp_path, caplog):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    path = folder / "ckpt-6.data-00000-of-00001"
    damaged = path.read_bytes()[:-5]
    path.write_bytes(damaged)
    metrics = run_pretraining(settings(runs, folder, "--nodo_train", "--do_eval", "--eval_batch_size=8"))
    assert "evaluated on training data at step 3" in caplog.text and metrics["loss"] != finished[1]["loss"]
    lines = folder / "metrics.jsonl"
    lines.write_text(re.sub(r'("split": "train".*?"loss": )[\d.]+', r"\g<1>0.1", lines.read_text(), count=1))
    run_pretraining(settings(runs, folder))
    assert f"using {folder}/ckpt-3, the newest intact checkpoint" in caplog.text
    assert "training has diverged: the loss was 0.1 at step 1 and is" in caplog.text
    assert (folder / "damaged/0/ckpt-6.data-00000-of-00001").read_bytes() == damaged
    got, expected = weights(folder / "ckpt-6"), weights(finished[0] / "ckpt-6")
    assert got.keys() == expected.keys()
    for name, value in got.items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_two_runs_do_not_train_in_one_folder_at_once(runs, finished, tmp_path):
    with run_folder.Lock(str(finished[0])):
        refused("another run is training there", run_pretraining, settings(runs, finished[0]))
        run_pretraining(settings(runs, finished[0], "--nodo_train", "--do_eval", "--eval_batch_size=8"))
    new = str(tmp_path / "new")
    with run_folder.Lock(new) as first, run_folder.Lock(new) as second:
        first.make_folder()
        refused("another run is training there", second.make_folder)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--input_file=nothing-*.tfrecord", "glob matches no file"),
        ("--bert_config_file=nothing.json", "nothing.json: no such file"),
        ("--init_checkpoint=nothing", "nothing: no such checkpoint"),
        ("--max_seq_length=64", "input_ids has 32 values but --max_seq_length=64"),
        ("--num_gpus=1", "TensorFlow finds 0 GPUs on this machine"),
        ("--use_tpu", "cannot reach the TPU"),
        ("--distribution_strategy=multi_worker_mirrored", "needs --worker_hosts="),
        ({"vocab_size": 100}, "vocab_size=100 is smaller than the vocabulary"),
        ({"type_vocab_size": 1}, "pairs of texts need 2"),
        ({"max_position_embeddings": 16}, "max_seq_length=32 is beyond max_position_embeddings=16"),
    ],
)
def test_bad_input_ends_before_anything_is_written(runs, tmp_path, more, message):
    if isinstance(more, dict):  # of the configuration
        more = f"--bert_config_file={config_file(runs, tmp_path, **more)}"
    refused(message, run_pretraining, settings(runs, tmp_path / "out", more))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_lamb_trains(runs, tmp_path):
    run_pretraining(settings(runs, tmp_path, "--optimizer=lamb", "--num_train_steps=3"))
    first, last = weights(tmp_path / "ckpt-0"), weights(tmp_path / "ckpt-3")
    assert all(np.abs(last[name] - first[name]).max() > 0 for name in first if name.startswith("model/"))


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_signal_after_last_check_is_not_lost(number, raised):
    # a shell's background job starts with SIGINT ignored, which an interruption respects
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(raised), Interruption():
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


@pytest.mark.slow
def test_a_run_in_an_object_store_resumes(runs, tmp_path):
    """TensorFlow treats file:// like the scheme of a bucket."""
    store = f"file://{tmp_path}"
    run_pretraining(settings(runs, f"{store}/run", "--num_train_steps=3", "--num_warmup_steps=0"))
    (tmp_path / "run/ckpt-3.index").rename(tmp_path / "gone")
    whole = run_pretraining(settings(runs, f"{store}/run", "--num_train_steps=3", "--num_warmup_steps=0", "--do_eval"))
    assert checkpoint_folder.newest_intact(f"{store}/run").step == 3
    assert losses(tmp_path / "run")[-1] > 0 and np.isfinite(whole["loss"])
