"""Whole runs of a task that is not a classification."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.engine import run_finetuning
from bert_tf.finetuning.task import Split
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.finetuning.word_task import FindTheWord, settings


@pytest.fixture(scope="module")
def trained(folder, vocab_file, tmp_path_factory):
    output = tmp_path_factory.mktemp("trained")
    do = ["--do_train", "--do_eval", "--do_predict"]
    return output, run_finetuning(settings(folder, vocab_file, output, *do), lambda _: FindTheWord(folder))


def test_a_task_of_another_shape_works(folder, trained):
    output, scores = trained
    assert scores.keys() == {"exact_rows", "loss"} and scores["exact_rows"] == 1.0 and scores["loss"] < 0.1
    assert "eval_exact_rows = 1.0" in (output / "eval_results.txt").read_text()
    found = json.loads((output / "found.json").read_text())
    assert found == {line: line.split().count("the") for line in (folder / "test.txt").read_text().splitlines()}
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    assert {"token_accuracy", "loss"} <= next(line for line in lines if line["split"] == "train").keys()


def test_first_examples_of_split_keep_all_rows():
    columns = {"tokens": tf.ragged.constant([[1], [2, 3], [4], [5], [6]]), "label_ids": tf.range(5)}
    split = Split("abc", columns, np.array([0, 0, 1, 2, 2]), np.array([3, 4, 3, 3, 3]))
    for count, rows in ((1, 2), (2, 3), (3, 5), (9, 5)):
        part = split.first(count)
        assert (len(part), len(part.lengths), part.columns["tokens"].nrows()) == (rows, rows, rows)
        np.testing.assert_array_equal(part.columns["label_ids"], np.arange(rows))


@pytest.mark.slow
def test_a_final_loss_that_is_not_finite_is_an_error(folder, vocab_file, tmp_path):
    flags = ["--do_train", "--num_train_epochs=0.5", "--learning_rate=1e30"]  # one step; the weights are still finite
    with pytest.raises(InputError, match=r"step 1 of .* is unusable: its evaluation is not finite \(loss\)"):
        run_finetuning(settings(folder, vocab_file, tmp_path, *flags), lambda _: FindTheWord(folder))


@pytest.mark.parametrize(
    ("flag", "what"), [("--do_eval", "loss"), ("--do_predict", "loss"), ("--do_predict", "predictions")]
)
def test_non_finite_outputs_are_not_written(folder, vocab_file, trained, flag, what):
    added = {"loss": 0.0, "predictions": 0.0} | {what: float("nan")}

    class Broken(FindTheWord):
        def losses(self, logits, batch):
            return super().losses(logits + added["loss"], batch)

        def prediction(self, logits, batch):
            return tf.cast(super().prediction(logits, batch), tf.float32) + added["predictions"]

    before = (trained[0] / "found.json").stat().st_mtime_ns
    with pytest.raises(InputError, match=rf"step 48 of .* is not finite \({what}\)"):
        run_finetuning(settings(folder, vocab_file, trained[0], flag), lambda _: Broken(folder))
    assert (trained[0] / "found.json").stat().st_mtime_ns == before


def test_a_kind_that_is_not_registered_is_not_exported(trained, tmp_path):
    with pytest.raises(
        InputError, match="the kind of task 'find' is unknown; known kinds: classification, regression, multi"
    ):
        export_saved_model(ExportSettings(checkpoint_dir=str(trained[0]), export_dir=str(tmp_path / "m")))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "task.json: no such file"), ("{", "is damaged"), ('{"kind": "x"}', "is damaged"),],
)  # fmt: skip
def test_a_missing_or_damaged_description_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "task.json").write_text(content)
    with pytest.raises(InputError, match=message):
        description.read(str(tmp_path))
