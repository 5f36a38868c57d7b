"""Prediction files of one data are never overwritten by those of other data."""

import json
import types

import pytest

from bert_tf.finetuning import prediction_files
from bert_tf.runs import run_folder
from tfrecords.errors import InputError


@pytest.fixture
def predict(tmp_path):
    """Writes predictions of a file of some content, and returns the run's folder."""
    folder = tmp_path / "run"
    folder.mkdir()

    def write(name, content, answer, overwrites=lambda name: True):
        (tmp_path / name).write_text(content)

        def write_predictions(folder, split, predictions):
            for each in ("test_results.tsv", "test_predictions.tsv"):
                with open(f"{folder}/{each}", "w") as file:
                    file.write(answer)
            return [f"{folder}/test_results.tsv", f"{folder}/test_predictions.tsv"]

        prints = run_folder.fingerprint([str(tmp_path / name)])
        task = types.SimpleNamespace(
            fingerprint=lambda split: prints, write_predictions=write_predictions, overwrites=overwrites
        )
        prediction_files.write(str(folder), task, types.SimpleNamespace(examples=[1]), None)
        return folder

    return write


def test_predictions_of_other_data_are_set_aside_and_those_of_the_same_data_are_replaced(predict, caplog):
    folder = predict("test.csv", "one", "first")
    predict("copy.csv", "one", "again")
    assert not (folder / "earlier_predictions").exists()
    predict("test.csv", "two", "second")
    assert "moved the predictions of other data (copy.csv, 3 bytes" in caplog.text
    predict("new.csv", "three", "third")
    kept = [folder / "earlier_predictions/0", folder / "earlier_predictions/1", folder]
    for name in ("test_results.tsv", "test_predictions.tsv"):
        assert [(path / name).read_text() for path in kept] == ["again", "second", "third"]
    assert [json.loads((path / "test_data.json").read_text())["data"][0][:8] for path in kept] == [
        "copy.csv", "test.csv", "new.csv,",
    ]  # fmt: skip


def test_what_the_new_data_does_not_overwrite_stays(predict):
    folder = predict("test.csv", "one", "first")
    predict("other.csv", "two", "second", lambda name: name != "test_results.tsv")
    assert sorted(path.name for path in (folder / "earlier_predictions/0").iterdir()) == [
        "test_data.json", "test_predictions.tsv",
    ]  # fmt: skip


def test_a_damaged_record_is_refused(predict):
    folder = predict("test.csv", "one", "first")
    (folder / "test_data.json").write_text("{}")
    with pytest.raises(InputError, match=r"test_data.json: is damaged .*; delete it to overwrite the predictions"):
        predict("test.csv", "two", "second")
    assert (folder / "test_predictions.tsv").read_text() == "first"
