"""Pre-training learns a teacher's predictions of masked tokens."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.core.errors import InputError
from bert_tf.pretraining.engine import run_pretraining
from bert_tf.pretraining.objective import BertPretrainer, PretrainingObjective
from bert_tf.report import run_report
from tests.bert_tf.pretraining_runs import settings, write_records
from tests.bert_tf.reference import random_batch
from tests.kit import read_jsonl
from tests.small_configs import small_config

LARGE, SMALL = small_config(dropout=0.0, hidden_size=24, num_hidden_layers=2), small_config(dropout=0.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory, corpus_file, vocab_file):
    folder = tmp_path_factory.mktemp("data")
    write_records(folder / "data.tfrecord", corpus_file, vocab_file)
    for name, config in (("large", LARGE), ("small", SMALL)):
        (folder / f"{name}.json").write_text(config.to_json_string())
    return folder


def run(data, config, folder, *more):
    flags = ["--num_warmup_steps=0", "--max_eval_steps=2", "--do_train", *more]
    run_pretraining(settings(f"{data}/{config}.json", f"{data}/data.tfrecord", folder, *flags), run_report.write)
    return read_jsonl(folder / "metrics.jsonl")


@pytest.fixture(scope="module")
def teacher(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher") / "run"
    run(data, "large", folder, "--num_train_steps=20")
    return folder


@pytest.mark.parametrize("next_sentence", [True, False])
def test_the_loss_is_the_formulas(next_sentence):
    keras.utils.set_random_seed(0)
    own, teacher = BertPretrainer(SMALL), BertPretrainer(LARGE)
    batch = random_batch(SMALL, 4, 16, 3)
    weight, temperature = 0.3, 2.0
    plain, taught = (
        PretrainingObjective(own, next_sentence, None, *more) for more in ((), (teacher, weight, temperature))
    )

    def loss(objective):
        return float(
            objective.loss(objective.numerators(batch, False, None)["loss"], objective.denominators(batch)["loss"])
        )

    logits = [np.float64(model(batch)["masked_lm_logits"]) / temperature for model in (teacher, own)]
    p, q = (np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in logits)
    weights = np.float64(batch["masked_lm_weights"])
    divergence = np.sum(weights * temperature**2 * np.sum(p * np.log(p / q), -1)) / weights.sum()
    numerators, counts = plain.numerators(batch, False, None)["loss"], plain.denominators(batch)["loss"]
    of_labels = float(numerators["masked_lm_loss"] / counts["masked_lm_loss"])
    assert loss(taught) == pytest.approx(loss(plain) + weight * (divergence - of_labels), rel=1e-5)


def test_a_student_approaches_its_teacher(data, teacher, tmp_path):
    rows = run(data, "small", tmp_path / "run", "--num_train_steps=20", f"--teacher={teacher}", "--distill_weight=1")
    losses = [row["teacher_loss"] for row in rows if row["split"] == "train"]
    assert losses[-1] < losses[0]


def test_a_copy_has_nothing_to_learn(data, teacher, tmp_path):
    given = "--num_train_steps=1", "--do_eval", f"--teacher={teacher}", f"--init_checkpoint={teacher}"
    rows = run(data, "large", tmp_path / "run", *given)
    first = next(row for row in rows if "teacher_loss" in row)
    assert first["split"] != "train" and first["step"] == 0 and first["teacher_loss"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--teacher={data}/none"], "none"),
        (["--teacher={other}"], "has vocab_size=290, but the model has 300"),
    ],
)
def test_an_unfit_teacher_is_refused(flags, message, data, teacher, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    model = BertPretrainer(small_config(290))
    tf.train.Checkpoint(model=model).save(str(other / "ckpt"))
    (other / "bert_config.json").write_text(small_config(290).to_json_string())
    with pytest.raises(InputError, match=message):
        more = [flag.format(data=data, other=other) for flag in flags]
        run(data, "small", tmp_path / "run", "--num_train_steps=1", *more)
    assert not (tmp_path / "run").exists()
