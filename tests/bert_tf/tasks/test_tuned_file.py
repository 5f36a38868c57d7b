"""A file of thresholds must contain numbers."""

import json

import numpy as np
import pytest

from bert_tf.core.errors import InputError
from bert_tf.tasks.classification import multi_label
from bert_tf.tasks.questions import squad_results


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
