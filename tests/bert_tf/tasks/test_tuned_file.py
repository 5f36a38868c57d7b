"""Thresholds that a user has edited are not lost when they are tuned again."""

import json
import types

import numpy as np
import pytest

from bert_tf.core.errors import InputError
from bert_tf.tasks.classification import multi_label
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.questions import squad_results
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_source import QuestionSource
from bert_tf.tasks.questions.squad_task import SquadTask
from tests.small_configs import small_config

TASKS = {
    multi_label.THRESHOLDS: multi_label.MultiLabelTask("own", types.SimpleNamespace(has_pairs=False), ("x", "y"), ()),
    squad_results.NULL_THRESHOLD: SquadTask(QuestionSource(), Decoding()),
}


def of_labels(folder, value, step):
    multi_label.THRESHOLDS.write(folder, np.array([0.5, value]), step, ["x", "y"])


@pytest.mark.parametrize(
    ("write", "name"),
    [(of_labels, multi_label.THRESHOLDS.name), (squad_results.NULL_THRESHOLD.write, squad_results.NULL_THRESHOLD.name)],
)
def test_a_changed_file_is_kept_and_warned_of_and_no_other(write, name, tmp_path, caplog):
    path = tmp_path / name
    write(str(tmp_path), 0.25, 3)
    write(str(tmp_path), 0.5, 4)  # another checkpoint
    write(str(tmp_path), 0.5 + 1e-6, 4)  # other batches
    assert [each.name for each in tmp_path.iterdir()] == [name] and not caplog.text
    tuned = path.read_text()
    edits = [tuned.replace("0.500001", "0.75"), json.dumps({"step": 4}), "{"]
    for number, edited in enumerate(edits):
        path.write_text(edited)
        write(str(tmp_path), 0.5 + 1e-6, 4)
        assert f"{name}: was edited after it was tuned" in caplog.text
        assert path.read_text() == tuned
        assert (tmp_path / f"{name}.edited-{number}").read_text() == edited
    path.write_text(edited := tuned.replace("0.500001", "0.75"))
    write(str(tmp_path), 0.25, 5)
    assert (tmp_path / f"{name}.edited-{len(edits)}").read_text() == edited, "of another checkpoint too"


@pytest.mark.parametrize(
    ("tuned", "name", "thresholds"),
    [
        (multi_label.THRESHOLDS, "thresholds", [{"x": True, "y": 0.5}, {"x": "0.5", "y": 0.5}]),
        (squad_results.NULL_THRESHOLD, "null_score_diff_threshold", [True, "1.5", None]),
    ],
)
def test_a_threshold_and_a_step_are_numbers(tuned, name, thresholds, tmp_path):
    path, good = tmp_path / tuned.name, {"x": 1, "y": 0.5} if name == "thresholds" else 1
    damaged = [{"step": 28, name: value} for value in thresholds] + [{"step": step, name: good} for step in ("28", 2.8)]
    for entries in damaged:
        path.write_text(json.dumps(entries))
        with pytest.raises(InputError, match=f"{tuned.name}: is damaged .*(is not a finite|not a whole) number"):
            tuned.read(str(tmp_path), 28, ["x", "y"])
    path.write_text(json.dumps({"step": 28, name: good}))
    assert np.all(tuned.read(str(tmp_path), 28, ["x", "y"]) == np.array([1, 0.5] if name == "thresholds" else 1))


@pytest.mark.parametrize("tuned", TASKS, ids=lambda tuned: tuned.name)
def test_a_new_run_does_not_use_thresholds_of_a_deleted_run(tuned, tmp_path):
    given = {"output_dir": str(tmp_path), "do_train": True, "do_eval": True, "max_seq_length": 100}
    files = {"train_file": "x", "predict_file": "x"} if tuned is squad_results.NULL_THRESHOLD else {"data_dir": "x"}
    kind = SquadSettings if "train_file" in files else ClassifierSettings

    def check(**flags):
        TASKS[tuned].check(small_config(), kind(**given | files | flags))

    check()
    value = 0.5 if kind is SquadSettings else np.array([0.5, 0.25])
    tuned.write(str(tmp_path), value, 28, ["x", "y"])
    with pytest.raises(
        InputError, match=f"{tuned.name}: belongs to an earlier run, .*; delete the whole folder, or give"
    ):
        check()
    check(**{tuned.flag: True})
    check(do_train=False)
    (tmp_path / "ckpt-7.index").touch()
    check()
