import types

import pytest

from bert_tf.training import metrics_file
from export.model_card import _other_scores, _scores


@pytest.mark.parametrize("threshold", [1.5, -100.0])
def test_the_card_shows_scores_of_the_exported_threshold_only(tmp_path, threshold):
    description = types.SimpleNamespace(parameters={"null_threshold": 1.5, "version_2_with_negative": True})
    exported = types.SimpleNamespace(folder=str(tmp_path), checkpoint=f"{tmp_path}/ckpt-3", description=description)
    results = {"eval_f1": 0.25, "eval_null_threshold": threshold, "global_step": 3}
    other = metrics_file.folder_of(str(tmp_path), "test.json")
    for folder in (str(tmp_path), other):
        metrics_file.write_results(folder, results)
    shown = [_scores(exported), *_other_scores(exported).values()]
    if threshold == 1.5:
        assert shown == [{"f1": 0.25, "null_threshold": 1.5, "global_step": 3}] * 2
    else:
        why = "the last evaluation had null_threshold -100, unlike this export; evaluate again"
        assert shown == [{"not shown": why}] * 2
