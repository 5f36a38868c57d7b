"""Choices and continuations scored by a left-to-right model that was not trained on the task."""

import json

import numpy as np
import pandas
import pytest

from tests import kit
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.kit import read_jsonl, refused

CHOICES = [("the man said", ["he was there", "all of you", "they had"], 1), ("you had the word", ["was", "he said"], 0)]


@pytest.fixture(scope="module")
def models(tmp_path_factory, vocab_file):
    folder = tmp_path_factory.mktemp("models")
    for direction in ("ltr", "bidi"):
        write_pretrained(folder / direction, vocab_file, directionality=direction, vocab_size=400)
    return folder


def score(folder, models, mode, lines, *flags, model="ltr", name="input.txt"):
    """Returns the objects that the script writes for lines."""
    (folder / name).write_text("".join(line + "\n" for line in lines))
    return run(folder, models, mode, folder / name, *flags, model=model)


def run(folder, models, mode, path, *flags, model="ltr"):
    output = folder / f"{mode}.jsonl"
    files = {"init_checkpoint": models / model, "input_file": path, "output_file": output}
    kit.run("score_text", *flags, **files, mode=mode, num_workers=1)
    return read_jsonl(output)


def test_a_continuation_scores_its_own_likelihood(models, tmp_path):
    pairs = [(context, choice) for context, choices, _ in CHOICES for choice in choices]
    found = score(tmp_path, models, "continuation", ["\t".join(pair) for pair in pairs])
    whole = score(tmp_path, models, "likelihood", [" ".join(pair) for pair in pairs], name="whole.txt")
    (tmp_path / "likelihood.jsonl").unlink()
    (tmp_path / "likelihood.jsonl.manifest.json").unlink()
    contexts = score(tmp_path, models, "likelihood", [context for context, _ in pairs], name="contexts.txt")
    for continuation, both, context in zip(found, whole, contexts, strict=True):
        expected = both["log_likelihood"] - context["log_likelihood"]
        np.testing.assert_allclose(continuation["log_likelihood"], expected, rtol=1e-5)
        assert len(continuation["tokens"]) == len(both["tokens"]) - len(context["tokens"])


def test_choice_has_highest_mean_log_probability(models, tmp_path, caplog):
    caplog.set_level("INFO")
    lines = [json.dumps({"context": c, "choices": choices, "label": label}) for c, choices, label in CHOICES]
    found = score(tmp_path, models, "choose", lines, name="examples.jsonl")
    pairs = [f"{context}\t{choice}" for context, choices, _ in CHOICES for choice in choices]
    values = iter(score(tmp_path, models, "continuation", pairs))
    right = []
    for entry, (_, choices, label) in zip(found, CHOICES, strict=True):
        alone = [next(values) for _ in choices]
        np.testing.assert_allclose(entry["log_likelihoods"], [each["log_likelihood"] for each in alone], rtol=1e-5)
        means = [each["log_likelihood"] / len(each["tokens"]) for each in alone]
        assert entry["prediction"] == np.argmax(means) and entry["choice"] == choices[entry["prediction"]]
        right.append(entry["prediction"] == label)
    assert f"accuracy {np.mean(right):.4f} without training" in caplog.text


def test_labels_are_chosen_by_their_texts(models, tmp_path):
    texts = json.dumps({"good": "it was good", "bad": "it was bad"})
    rows = ["text\tlabel", "the man said\tgood", f"{'word ' * 100}the man said\tbad"]
    found = score(tmp_path, models, "choose", rows, f"--label_texts={texts}", "--max_seq_length=24", name="rows.tsv")
    assert [entry["label"] for entry in found] == ["good", "bad"]
    assert all(json.loads(texts)[entry["prediction"]] == entry["choice"] for entry in found)
    rows[2] = f"{'word ' * 40}the man said\tbad"
    again = score(tmp_path, models, "choose", rows, f"--label_texts={texts}", "--max_seq_length=24", name="rows.tsv")
    assert again == found  # the same last tokens remain


def test_texts_and_labels_that_pandas_wrote_are_read(models, tmp_path):
    texts = "--label_texts=" + json.dumps({"1": "it was good", "0": "it was bad"})
    table = pandas.DataFrame({"text": ["the man said", None, "all of you"], "label": [1, 0, None]})
    found = {}
    for end, write in {"csv": table.to_csv, "parquet": table.to_parquet}.items():
        write(path := tmp_path / f"table.{end}")
        found[end] = run(tmp_path, models, "choose", path, texts)
    assert found["csv"] == found["parquet"] and [entry["label"] for entry in found["csv"]] == [None] * 3
    table.iloc[:2].to_json(tmp_path / "table.jsonl", orient="records", lines=True)  # the labels are floats
    known = run(tmp_path, models, "choose", tmp_path / "table.jsonl", texts)
    assert known == [entry | {"label": label} for entry, label in zip(found["csv"], ("1", "0"), strict=False)]


@pytest.mark.parametrize(
    ("mode", "line", "flags", "message"),
    [
        ("continuation", "no tab", [], "line 1: has 0 tabs; write the context, one tab, and the continuation"),
        ("continuation", "the man\t", [], "line 1: has no token after the tab"),
        ("choose", "text\tlabel\nthe man\tother", ["--label_texts=" + json.dumps({"a": "x", "b": "y"})],
         "line 2: the label 'other' has no text in --label_texts, which names a, b"),
        ("choose", "x", ["--label_texts=positive"], "--label_texts=positive: is not a JSON object"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_refused(models, tmp_path, mode, line, flags, message):
    refused(message, score, tmp_path, models, mode, [line], *flags, name="input.tsv")


@pytest.mark.parametrize("mode", ["continuation", "choose"])
def test_a_bidirectional_model_is_refused(models, tmp_path, mode):
    message = r"has directionality=bidi, but only a left-to-right model gives"
    refused(message, score, tmp_path, models, mode, ["the man\tsaid"], model="bidi", name="input.tsv")
