"""Steps whose loss or gradient is not finite."""

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.pretraining.engine import run_pretraining
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.runs import checkpoint_folder
from bert_tf.training import metrics_file
from bert_tf.training.trainer import MOST_SKIPPED_IN_A_ROW, Stopped
from tests.bert_tf.training.one_batch import ROWS, batch, make_trainer, spoilt
from tests.bert_tf.training.test_training import settings
from tests.kit import refused

# An infinite loss with finite gradients, and a finite loss whose gradient is NaN.
INFINITE = spoilt(39, lambda loss, is_bad: loss + tf.where(is_bad, float("inf"), 0.0))
NO_NUMBER = spoilt(38, lambda loss, is_bad: loss + tf.sqrt(tf.where(is_bad, loss - loss, 1.0)))


def rows(bad_from: int = ROWS, token: int = 39) -> dict:
    made = batch(PretrainingObjective)
    made["input_ids"][:, 0] = np.where(np.arange(ROWS) < bad_from, 7, token)
    return made


def steps(*bad_from: int, token: int = 39) -> dict:
    """Returns the rows of several steps."""
    parts = [rows(each, token) for each in bad_from]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def state(trainer):
    return [variable.numpy() for variable in (*trainer.objective.model.variables, *trainer.optimizer.variables)]


def check_unchanged(trainer, before):
    names = [v.name for v in (*trainer.objective.model.variables, *trainer.optimizer.variables)]
    for name, old, new in zip(names, before, state(trainer), strict=True):
        if not name.startswith(("current_learning", "learning", "loss_scale", "good_steps")):
            np.testing.assert_array_equal(new, old, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "token", "compiled"),
    [(INFINITE, 39, False), (NO_NUMBER, 38, False), (NO_NUMBER, 38, True)],
)
def test_a_bad_row_on_one_replica_skips_the_step(objective, token, compiled):
    trainer = make_trainer(objective, 2, rows=steps(ROWS, ROWS - 1, token=token), compiles=compiled)
    before = trainer.objective.model.get_weights()
    trainer.train(tf.constant(1))
    assert trainer.failed_step == 0 and trainer.non_finite_variable() == ""
    assert any((old != new).any() for old, new in zip(before, trainer.objective.model.get_weights(), strict=True))
    before = state(trainer)
    with pytest.raises(Stopped):
        trainer.train(tf.constant(1))
    assert trainer.failed_step == 2
    check_unchanged(trainer, before)


@pytest.mark.slow
def test_skips_limited_number_of_non_finite_steps():
    """A good step ends the count of bad steps in a row."""
    bad = [0] * MOST_SKIPPED_IN_A_ROW
    trainer = make_trainer(INFINITE, rows=steps(*bad, ROWS, *bad, 0), skip_non_finite_steps=True)
    before = state(trainer)
    results = trainer.train(tf.constant(MOST_SKIPPED_IN_A_ROW))
    assert results["skipped_steps"] == MOST_SKIPPED_IN_A_ROW and trainer.failed_step == 0
    # the schedule counts all steps, the bias correction only applied steps
    np.testing.assert_allclose(results["learning_rate"], 1e-2 * (1 - (MOST_SKIPPED_IN_A_ROW - 1) / 10), rtol=1e-5)
    assert (trainer.global_step, trainer.optimizer.iterations) == (MOST_SKIPPED_IN_A_ROW, 0)
    assert all(np.isfinite(float(value)) for value in results.values())
    check_unchanged(trainer, before)
    trainer.train(tf.constant(1 + MOST_SKIPPED_IN_A_ROW))
    assert trainer.failed_step == 0 and trainer.optimizer.iterations == 1
    before = state(trainer)
    with pytest.raises(Stopped):
        trainer.train(tf.constant(1))
    assert trainer.failed_step == 2 * MOST_SKIPPED_IN_A_ROW + 2
    check_unchanged(trainer, before)


@pytest.mark.slow
@pytest.mark.parametrize("compiles", [False, True])
def test_float16_fails_only_at_the_lowest_scale(compiles):
    """A loss that is not finite is bad at once, a gradient only at the lowest loss scale."""
    try:
        infinite = make_trainer(INFINITE, rows=rows(0), dtype="float16", compiles=compiles)
        with pytest.raises(Stopped):
            infinite.train(tf.constant(1))
        overflowing = make_trainer(NO_NUMBER, rows=rows(0, token=38), dtype="float16", compiles=compiles)
        halvings = int(np.log2(float(overflowing.optimizer.loss_scale)))
        overflowing.train(tf.constant(halvings))
        assert overflowing.failed_step == 0 and float(overflowing.optimizer.loss_scale) == 1.0
        assert (overflowing.global_step, overflowing.optimizer.iterations) == (halvings, 0)
        with pytest.raises(Stopped):
            overflowing.train(tf.constant(1))
        assert overflowing.failed_step == halvings + 1
    finally:
        keras.mixed_precision.set_global_policy("float32")


@pytest.fixture
def bad_record(runs, monkeypatch):
    """Makes the loss of one record NaN."""
    number, records = 20, tf.data.TFRecordDataset(f"{runs}/32.tfrecord").as_numpy_iterator()
    record = next(itertools.islice(records, number, None))
    ids = tf.train.Example.FromString(record).features.feature["input_ids"].int64_list.value
    numerators = PretrainingObjective.numerators

    def spoilt(self, batch, training, seed):
        terms = numerators(self, batch, training, seed)
        there = tf.reduce_any(tf.reduce_all(batch["input_ids"] == tf.constant(ids, tf.int32), axis=1)) & training
        terms["loss"]["masked_lm_loss"] = tf.where(there, float("nan"), terms["loss"]["masked_lm_loss"])
        return terms

    monkeypatch.setattr(PretrainingObjective, "numerators", spoilt)


LONG = ("--num_train_steps=40", "--save_checkpoints_steps=5", "--iterations_per_loop=4")


@pytest.mark.slow
@pytest.mark.usefixtures("bad_record")
def test_a_stopped_run_names_its_step_and_checkpoint(runs, tmp_path):
    message = refused("^loss or gradient of step .* is not finite", run_pretraining, settings(runs, tmp_path, *LONG))
    found, failed = checkpoint_folder.newest_intact(str(tmp_path)), int(re.search(r"\d+", message)[0])
    assert found.step == (failed - 1) // 5 * 5 < failed
    assert f"the last good checkpoint is {found.prefix};" in message and "--skip_non_finite_steps" in message
    assert "diverged" in message

    run_pretraining(settings(runs, tmp_path, *LONG, "--skip_non_finite_steps"))
    assert checkpoint_folder.newest_intact(str(tmp_path)).step == 40
    lines = [entry for entry in metrics_file.read(str(tmp_path), "metrics.jsonl") if entry["split"] == "train"]
    assert lines[-1]["skipped_steps"] >= 1 and all(np.isfinite(line["loss"]) for line in lines)
    updates = tf.train.load_variable(str(tmp_path / "ckpt-40"), "optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE")
    assert updates == 40 - lines[-1]["skipped_steps"]


@pytest.mark.slow
def test_no_checkpoint_of_non_finite_weights(runs, tmp_path):
    refused(
        r"^[\w/]+:0 is not finite after step 1; the last good checkpoint is .*/ckpt-0; training",
        run_pretraining,
        settings(runs, tmp_path, "--learning_rate=1e39", "--num_warmup_steps=0", "--save_checkpoints_steps=1"),
    )
    assert checkpoint_folder.newest_intact(str(tmp_path)).step == 0
