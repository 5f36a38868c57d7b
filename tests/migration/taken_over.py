"""Exports models that transformers wrote, and compares the answers with those of transformers."""

import csv
import json
import pathlib

import numpy as np
import tensorflow as tf

from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests import kit
from tests.migration import transformers_models

PREDICTED = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
TOLERANCE = {"rtol": 0, "atol": 2e-5}


def assert_answers(head: str, form: str, folder: pathlib.Path, target: pathlib.Path) -> None:
    """Exports the model in `folder`; compares the export's answers to raw strings with those of transformers.

    Args:
      folder: the model; the parent folder has the answers of transformers.
    """
    expected = json.loads((folder.parent / f"{form}.json").read_text())
    task = {"Model": "embeddings", "ForMaskedLM": "fill_mask", "ForPreTraining": "fill_mask"}.get(head, "")
    has_pairs = True if head == "ForSequenceClassification" else None
    source = next(folder.glob("saved_model/*"), folder)
    # The decoding of answers is exhaustive, like the reference.
    decoding = {"max_answer_length": 30, "n_best_size": 1000} if head == "ForQuestionAnswering" else {}
    flags = {"checkpoint_dir": str(source), "export_dir": str(target), "task_name": task, "has_pairs": has_pairs}
    settings = ExportSettings(**flags, **decoding)
    export_saved_model(settings)
    served = tf.saved_model.load(str(target / "1"))

    def ask(signature: str, **inputs):
        return {name: value.numpy() for name, value in served.signatures[signature](**inputs).items()}

    first, second = (tf.constant(texts) for texts in transformers_models.pairs(200))
    if head == "Model":
        np.testing.assert_allclose(ask("serving_default", text=first)["embedding"], expected, **TOLERANCE)
    elif head == "ForSequenceClassification":
        found = ask("serving_default", text_a=first, text_b=second)["probabilities"]
        np.testing.assert_allclose(found, expected, **TOLERANCE)
    elif head == "ForTokenClassification":
        found = ask("words", words=first)
        for scores, tags, theirs in zip(found["scores"], found["tags"], expected, strict=True):
            probabilities, is_entity = np.transpose(theirs)
            np.testing.assert_allclose(scores[: len(theirs)], probabilities, **TOLERANCE)
            np.testing.assert_array_equal(tags[: len(theirs)] != b"O", is_entity)
    elif head == "ForQuestionAnswering":
        found = ask("serving_default", question=first, context=second)["score"]
        np.testing.assert_allclose(found, expected, **TOLERANCE)
    elif head == "ForMultipleChoice":
        choices = tf.stack([second, second[::-1]], 1)
        found = ask("serving_default", context=first, start=tf.fill([200], ""), choices=choices)
        np.testing.assert_allclose(found["probabilities"], expected, **TOLERANCE)
    else:
        mask = json.loads((folder / "tokenizer_config.json").read_text())["mask_token"]
        mask = mask["content"] if isinstance(mask, dict) else mask
        found = ask("serving_default", text=tf.strings.join([first, second], f" {mask} "))["scores"]
        np.testing.assert_allclose(found[:, 0, :5], expected, **TOLERANCE)


def assert_predictions(head: str, form: str, folder: pathlib.Path, target: pathlib.Path) -> None:
    """Predicts with a model of transformers through its script; compares as `assert_answers` does."""
    target.mkdir()
    first, second = transformers_models.pairs(200)
    expected = json.loads((folder.parent / f"{form}.json").read_text())
    source = next(folder.glob("saved_model/*"), folder)
    flags = [f"--init_checkpoint={source}", f"--output_dir={target}/new"]
    if head == "ForSequenceClassification":
        write_pairs(target / "test.csv", first, second)
        assert_probabilities_of_run(flags, target, expected)
    elif head == "ForTokenClassification":
        path = target / "test.conll"
        path.write_text("\n".join("".join(f"{word}\n" for word in text.split()) for text in first), encoding="utf-8")
        more = ["--do_predict", f"--test_data_path={path}", "--max_seq_length=128"]
        kit.run("run_ner", *flags, *more)
        sentences = (target / "new/test_predictions.txt").read_text(encoding="utf-8").strip().split("\n\n")
        found = [[int(line.split()[-1] != "O") for line in lines.split("\n")] for lines in sentences]
        assert found == [[is_entity for _, is_entity in theirs] for theirs in expected]
    else:
        asked = zip(first, second, strict=True)
        paragraphs = [
            {"context": context, "qas": [{"id": str(number), "question": question}]}
            for number, (question, context) in enumerate(asked)
        ]
        path = target / "test.json"
        path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
        more = ["--do_predict", f"--predict_file={path}", "--max_seq_length=256", "--n_best_size=1000"]
        kit.run("run_squad", *flags, *more)
        best = json.loads((target / "new/nbest_predictions.json").read_text(encoding="utf-8"))
        found = [best[str(number)][0] for number in range(200)]
        scores = [one["start_logit"] + one["end_logit"] for one in found]
        np.testing.assert_allclose(scores, expected, **TOLERANCE)


def write_pairs(path: pathlib.Path, first, second) -> None:
    """Writes a .csv file of pairs; label i is LABEL_i, as transformers names labels without a name."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "label"])
        writer.writerows((*pair, f"LABEL_{number % 3}") for number, pair in enumerate(zip(first, second, strict=True)))


def assert_probabilities_of_run(flags, target: pathlib.Path, expected) -> None:
    """Evaluates and predicts the pairs in `test.csv` with run_classifier."""
    columns = ["--text_a_column=a", "--text_b_column=b", "--task_name=own"]
    files = [f"--{name}_data_path={target}/test.csv" for name in ("eval", "test")]
    scores = kit.run("run_classifier", *flags, *columns, *files, "--do_eval", "--do_predict")
    found = np.loadtxt(target / "new/test_results.tsv")
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    right = np.argmax(expected, 1) == np.arange(len(expected)) % 3
    assert scores["accuracy"] == np.float32(right.mean())
