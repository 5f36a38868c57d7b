"""The context of a run, and when each core computes a part of a batch; test_packed_finetuning tests the gradients."""

import dataclasses
import os

import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from bert_tf.core.errors import InputError
from bert_tf.finetuning import engine as finetuning
from bert_tf.pretraining import engine as pretraining
from bert_tf.settings import PretrainingSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.training import batch_parts, session

SETTINGS = ClassifierSettings(do_train=True, output_dir="run", data_dir="data", task_name="CoLA")


@pytest.mark.parametrize(
    ("cores", "changes", "expected"),
    [
        (2, {}, 2),
        (2, {"do_predict": True, "predict_batch_size": 3}, 1),
        (2, {"predict_batch_size": 3}, 2),
        (2, {"train_batch_size": 6, "gradient_accumulation_steps": 2}, 1),
        (2, {"distribution_strategy": "mirrored"}, 1),
        (2, {"enable_xla": True}, 1),
        (1, {}, 1),
        (16, {}, 1),
    ],
)
def test_two_cores_compute_a_part_of_a_batch_each(monkeypatch, cores, changes, expected):
    threads = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(cores), raising=False)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", threads.append)
    assert finetuning.parts_of(dataclasses.replace(SETTINGS, **changes)) == expected
    assert threads == ([1] if expected == 2 else [])


def test_a_process_that_has_computed_keeps_its_threads(monkeypatch):
    def refuse(number):
        raise RuntimeError("Intra op parallelism cannot be modified after initialization.")

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(2), raising=False)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", refuse)
    assert finetuning.parts_of(SETTINGS) == 1


@pytest.mark.parametrize(
    ("rows", "length", "changes", "expected"),
    [
        (16, 128, {}, 2),
        (2, 512, {}, 1),  # too few tokens in a step
        (32, 128, {"gradient_accumulation_steps": 4}, 1),
        (15, 512, {}, 1),
        (16, 128, {"do_train": False}, 1),
    ],
)
def test_pretraining_divides_large_batches(monkeypatch, rows, length, changes, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(2), raising=False)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", lambda number: None)
    given = {"input_file": "x", "output_dir": "run", "do_train": True, "do_eval": True} | changes
    settings = PretrainingSettings(train_batch_size=rows, max_seq_length=length, **given)
    assert pretraining.parts_of(settings) == expected


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_sums_over_parts_are_sums_over_the_batch(rows):
    batch = {"ids": tf.range(rows), "weights": tf.reshape(tf.range(2.0 * rows), [rows, 2])}
    sums = tf.function(
        lambda batch: batch_parts.summed(lambda part: {key: tf.reduce_sum(x) for key, x in part.items()}, batch, 2),
        input_signature=[{"ids": tf.TensorSpec([None], tf.int32), "weights": tf.TensorSpec([None, 2])}],
        autograph=False,
    )(batch)
    assert (int(sums["ids"]), float(sums["weights"])) == (sum(range(rows)), float(sum(range(2 * rows))))


PRETRAINING = PretrainingSettings(input_file="x", output_dir="y", do_eval=True)
OOM = "OOM when allocating tensor with shape[100000,128,3072] and type float"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (tf.errors.ResourceExhaustedError(None, None, OOM), r"of shape \[100000,128,3072\]; lower"),
        (tf.errors.InternalError(None, None, "Out of memory while trying to allocate 5 bytes"), "out of memory; lower"),
        (MemoryError(), "out of memory; lower --train_batch_size"),
    ],
)
def test_out_of_memory_error_names_helpful_flags(error, shown):
    with pytest.raises(InputError, match=shown), session.clear_memory_errors(PRETRAINING):
        raise error


def test_a_full_disk_is_not_out_of_memory():
    with pytest.raises(tf.errors.ResourceExhaustedError), session.clear_memory_errors(PRETRAINING):
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")


def test_deterministic_runs_do_not_affect_later_runs(tmp_path):
    for is_before in (False, True):
        (config.enable_op_determinism if is_before else config.disable_op_determinism)()
        try:
            for is_wanted in (True, False):
                settings = dataclasses.replace(PRETRAINING, output_dir=str(tmp_path), deterministic=is_wanted)
                with session.session(settings, tf.distribute.get_strategy()):
                    assert config.is_op_determinism_enabled() == (is_before or is_wanted)
                assert config.is_op_determinism_enabled() == is_before
        finally:
            config.disable_op_determinism()
