"""The page of file formats names every key that the code writes."""

import dataclasses
import pathlib

import pytest

from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.sweep_results import Trial
from bert_tf.runs.evaluations import Evaluations
from bert_tf.runs.run_record import TrainingRecord
from tfrecords.manifest import Shard
from tfrecords.schema import pretraining_features

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/file_formats.md"


def section(title: str) -> str:
    """Returns the text from a heading to the next one."""
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(f" {title}\n") :].split("\n#", 1)[0]


def fields(written: type) -> list[str]:
    return [field.name for field in dataclasses.fields(written)]


@pytest.mark.parametrize(
    "title, names",
    [
        ("Pre-training data", [feature.name for feature in pretraining_features(8, 2)]),
        ("The manifest", fields(Shard)),
        ("`run.json`", [*fields(TrainingRecord), "phases", "saved_step"]),
        ("`task.json`", fields(TaskDescription)),
        # `scores` by step are a list on disk
        ("`evaluations.json`", [*fields(Evaluations), "best_step", "evaluations"]),
        ("Sweeps and ensembles", fields(Trial)),
    ],
)
def test_a_section_names_all_keys(title, names):
    assert [name for name in names if f"`{name}`" not in section(title)] == []
