"""Predictions for other data never overwrite prediction files."""

import json
import types

import pytest

from bert_tf.core.errors import InputError
from bert_tf.finetuning import prediction_files
from bert_tf.runs import run_folder


@pytest.fixture
def predict(tmp_path):
    """Writes predictions for a file with some content, and returns the run's folder."""
    folder = tmp_path / "run"
    folder.mkdir()

    def write(name, content, answer, own="test_predictions.tsv", overwrites=lambda name: True):
        (tmp_path / name).write_text(content)

        def write_predictions(folder, split, predictions):
            for each in ("test_results.tsv", own):
                with open(f"{folder}/{each}", "w") as file:
                    file.write(answer)
            return [f"{folder}/test_results.tsv", f"{folder}/{own}"]

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
    assert "moved the predictions for other data (copy.csv, 3 bytes" in caplog.text
    predict("new.csv", "three", "third")
    kept = [folder / "earlier_predictions/0", folder / "earlier_predictions/1", folder]
    for name in ("test_results.tsv", "test_predictions.tsv"):
        assert [(path / name).read_text() for path in kept] == ["again", "second", "third"]
    assert [json.loads((path / "test_data.json").read_text())["files"]["test_results.tsv"][0][:8] for path in kept] == [
        "copy.csv", "test.csv", "new.csv,",
    ]  # fmt: skip


def texts(folder):
    return {
        path.name: path.read_text() for path in folder.iterdir() if path.is_file() and path.name != "test_data.json"
    }


def test_a_repeated_command_leaves_what_the_first_one_left(predict):
    for _ in range(3):
        folder = predict("dev.csv", "one", "of dev")
        predict("test.csv", "two", "of test")
        assert set(texts(folder).values()) == {"of test"}
        earlier = [texts(path) for path in (folder / "earlier_predictions").iterdir()]
        assert earlier == [dict.fromkeys(("test_results.tsv", "test_predictions.tsv"), "of dev")]
    predict("dev.csv", "one", "of dev")
    (folder / "earlier_predictions/1/notes.txt").write_text("mine")
    predict("test.csv", "two", "of test")
    assert texts(folder / "earlier_predictions/1") == {"notes.txt": "mine"}


def test_files_that_the_user_deleted_are_not_set_aside(predict):
    folder = predict("test.csv", "one", "first")
    (folder / "test_results.tsv").unlink()
    predict("test.csv", "two", "second")
    assert texts(folder / "earlier_predictions/0") == {"test_predictions.tsv": "first"}
    assert set(texts(folder).values()) == {"second"}


def test_files_of_a_submission_stay_beside_those_of_another_set_but_not_of_other_data(predict):
    """Predicts MNLI, then AX in the same folder, then other data of MNLI."""
    sets = {name: lambda file, own=f"{name}.tsv": file in (own, "test_results.tsv") for name in ("MNLI-m", "AX")}
    folder = predict("mnli.tsv", "one", "first", "MNLI-m.tsv", sets["MNLI-m"])
    predict("ax.tsv", "two", "ax", "AX.tsv", sets["AX"])
    assert texts(folder) == {"MNLI-m.tsv": "first", "AX.tsv": "ax", "test_results.tsv": "ax"}
    predict("mnli.tsv", "three", "second", "MNLI-m.tsv", sets["MNLI-m"])
    assert texts(folder) == {"MNLI-m.tsv": "second", "AX.tsv": "ax", "test_results.tsv": "second"}
    assert texts(folder / "earlier_predictions/0") == {"MNLI-m.tsv": "first", "test_results.tsv": "first"}
    assert texts(folder / "earlier_predictions/1") == {"test_results.tsv": "ax"}
    predict("mnli.tsv", "one", "first again", "MNLI-m.tsv", sets["MNLI-m"])
    assert texts(folder) == {"MNLI-m.tsv": "first again", "AX.tsv": "ax", "test_results.tsv": "first again"}
    assert len(list((folder / "earlier_predictions").iterdir())) == 2


def test_a_damaged_record_is_refused(predict):
    folder = predict("test.csv", "one", "first")
    (folder / "test_data.json").write_text('{"data": [], "files": []}')
    with pytest.raises(InputError, match=r"test_data.json: is damaged .*; delete it to overwrite the predictions"):
        predict("test.csv", "two", "second")
    assert (folder / "test_predictions.tsv").read_text() == "first"
