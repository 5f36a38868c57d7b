import json
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.task import Split
from bert_tf.runs import evaluations
from bert_tf.tasks.classification import multi_label
from bert_tf.tasks.classification.classification_task import ClassificationTask
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.trained import Trained
from bert_tf.training import metrics_file
from export import model_card
from tests.export.exports import CONFIG

DEV = "Scores on the dev data"


def sections(folder, parameters, labels=()) -> dict[str, list[str]]:
    """The lines of the card of a checkpoint of step 3, by the headings."""
    description = TaskDescription("questions", "own", labels, 8, parameters)
    model, tokenizer = (types.SimpleNamespace(variables=[], do_lower_case=True, strip_accents=True),) * 2
    source = Trained(None, str(folder), f"{folder}/ckpt-3", 3, model, tokenizer, description, CONFIG)
    parts = (part.partition("\n\n") for part in model_card.text(source, {}).split("\n## ")[1:])
    return {title: sorted(lines.strip().splitlines()) for title, _, lines in parts}


def on(name: str) -> str:
    return f"Scores on {name}, which is not the dev data"


@pytest.mark.parametrize("threshold", [1.5, -100.0])
def test_card_shows_scores_only_of_exported_threshold(tmp_path, threshold):
    for folder in (str(tmp_path), metrics_file.folder_of(str(tmp_path), "test.json")):
        results = {"eval_f1": 0.25, "eval_null_threshold": threshold, "global_step": 3}
        metrics_file.write_results(folder, results)
    card = sections(tmp_path, {"null_threshold": 1.5, "version_2_with_negative": True})
    why = "the last evaluation had null_threshold -100.0, unlike this export; evaluate again"
    shown = ["- f1: 0.25", "- global_step: 3", "- null_threshold: 1.5"] if threshold == 1.5 else [f"- not shown: {why}"]
    assert card[DEV] == card[on("test.json")] == shown


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
    card = sections(tmp_path, {"thresholds": multi_label.THRESHOLDS.read(run, 3, labels).tolist()}, labels)
    if is_edited:
        (why,) = card[on("test.csv")]
        assert why.startswith("- not shown: the last evaluation had thresholds [0.")
        assert not any("micro_f1" in line for line in card[DEV])
    else:
        assert {"- micro_f1: 0.25", "- data: dev.csv, 3 examples, 0"} <= set(card[DEV])
        assert "- micro_f1: 0.25" in card[on("test.csv")]


def test_card_identifies_data_other_than_dev_data(tmp_path):
    metrics_file.write_results(metrics_file.folder_of(str(tmp_path), "test.csv"), {"eval_f1": 0.25, "global_step": 3})
    metrics_file.record(str(tmp_path), "test.csv", 3, {"data": "test.csv, 8 examples, 0123", "f1": 0.25})
    shown = ["- data: test.csv, 8 examples, 0123", "- f1: 0.25", "- global_step: 3"]
    assert sections(tmp_path, {})[on("test.csv")] == shown
