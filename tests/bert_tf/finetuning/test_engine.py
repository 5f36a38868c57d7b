"""Whole runs of a task that is not a classification."""

import json

import pytest
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.finetuning.engine import run_finetuning
from tests.bert_tf.finetuning.word_task import FindTheWord, settings
from tests.kit import refused


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


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "task.json: no such file"), ("{", "is damaged"), ('{"kind": "x"}', "is damaged"),],
)  # fmt: skip
def test_a_missing_or_damaged_description_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "task.json").write_text(content)
    refused(message, description.read, str(tmp_path))
