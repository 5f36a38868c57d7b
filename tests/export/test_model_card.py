import json
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.task import Split
from bert_tf.runs import evaluations
from bert_tf.tasks.classification import multi_label
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import Example
from bert_tf.training import metrics_file
from export.model_card import _other_scores, _scores


@pytest.mark.parametrize("threshold", [1.5, -100.0])
def test_card_shows_scores_only_of_exported_threshold(tmp_path, threshold):
    description = types.SimpleNamespace(parameters={"null_threshold": 1.5, "version_2_with_negative": True})
    exported = types.SimpleNamespace(folder=str(tmp_path), step=3, description=description)
    results = {"eval_f1": 0.25, "eval_null_threshold": threshold, "global_step": 3}
    other = metrics_file.folder_of(str(tmp_path), "test.json")
    for folder in (str(tmp_path), other):
        metrics_file.write_results(folder, results)
    shown = [_scores(exported), *_other_scores(exported).values()]
    if threshold == 1.5:
        assert shown == [{"f1": 0.25, "null_threshold": 1.5, "global_step": 3}] * 2
    else:
        why = "the last evaluation had null_threshold -100.0, unlike this export; evaluate again"
        assert shown == [{"not shown": why}] * 2


@pytest.mark.parametrize("is_edited", [False, True])
def test_the_card_shows_the_exported_scores(tmp_path, is_edited):
    labels, run, other = ("a", "b"), str(tmp_path), metrics_file.folder_of(str(tmp_path), "test.csv")
    task = ClassificationTask("own", multi_label.LabelSets(labels, run_folder=run, tune_thresholds=True))
    split = Split(
        [Example("the man", None, ())] * 3, {"label_ids": tf.constant([[0.0, 1], [1, 1], [1, 0]])}, np.arange(3)
    )
    logits = np.array([[0.1, 2], [0.8, 1.2], [1, 0.4]], np.float32)
    task.write_evaluation(run, split, logits, 3)
    evaluations.write(run, evaluations.Evaluations("micro_f1", data="dev.csv, 3 examples, 0", scores={
        3: {"micro_f1": 0.25}, 5: {"micro_f1": 0.125}}))  # fmt: skip
    task.write_evaluation(other, split, logits, 3)
    for folder in (run, other):
        metrics_file.write_results(folder, {"eval_micro_f1": 0.25, "global_step": 3})
    tuned = json.loads((tmp_path / "thresholds.json").read_text())
    if is_edited:
        tuned["thresholds"]["a"] = 0.999
        (tmp_path / "thresholds.json").write_text(json.dumps(tuned))
    description = types.SimpleNamespace(parameters={}, labels=labels)
    description.parameters["thresholds"] = multi_label.THRESHOLDS.read(run, 3, labels).tolist()
    exported = types.SimpleNamespace(folder=run, step=3, description=description)
    dev, test = _scores(exported), *_other_scores(exported).values()
    if is_edited:
        assert list(test) == ["not shown"] and "had thresholds [0." in test["not shown"]
        assert "micro_f1" not in dev
    else:
        assert dev["micro_f1"] == test["micro_f1"] == 0.25 and dev["data"] == "dev.csv, 3 examples, 0"


def test_card_identifies_data_other_than_dev_data(tmp_path):
    description = types.SimpleNamespace(parameters={})
    exported = types.SimpleNamespace(folder=str(tmp_path), step=3, description=description)
    metrics_file.write_results(metrics_file.folder_of(str(tmp_path), "test.csv"), {"eval_f1": 0.25, "global_step": 3})
    metrics_file.record(str(tmp_path), "test.csv", 3, {"data": "test.csv, 8 examples, 0123", "f1": 0.25})
    shown = {"data": "test.csv, 8 examples, 0123", "f1": 0.25, "global_step": 3}
    assert _other_scores(exported) == {"Scores on test.csv, which is not the dev data": shown}
