"""One task of each kind on real data, from a published checkpoint to scores.

Scores beside other programs are in `benchmarks/`.
"""

import json
import pathlib
import re

import pytest

from benchmarks.question_sentences import of_sentences
from tests import kit


def learned(script: str, checkpoint: pathlib.Path, folder: pathlib.Path, **flags) -> dict[str, float]:
    """Returns the scores after an epoch of fine-tuning."""
    flags |= {"init_checkpoint": checkpoint, "output_dir": folder / "run", "num_train_epochs": 1, "train_batch_size": 8}
    return kit.run(script, "--do_train", "--do_eval", eval_batch_size=16, **flags)


@pytest.mark.real
def test_published_checkpoint_learns_continuations(data_dir, minilm, tmp_path):
    for split, rows in (("train", 160), ("dev", 60)):
        lines = (data_dir / "swag" / f"continuations-{split}.csv").read_bytes().splitlines(keepends=True)
        (tmp_path / f"{split}.csv").write_bytes(b"".join(lines[: rows + 1]))
    files = {"train_data_path": tmp_path / "train.csv", "eval_data_path": tmp_path / "dev.csv"}
    scores = learned("run_swag", minilm, tmp_path, **files, max_seq_length=64, learning_rate=3e-4)
    assert next(iter(scores)) == "accuracy" and scores["accuracy"] > 0.4, f"chance is 0.25: {scores}"


@pytest.mark.real
def test_published_checkpoint_learns_to_answer(data_dir, minilm, tmp_path):
    """For comparison: a random span has F1 0.12."""
    files = {}
    for name, count in (("train", 300), ("dev", 70)):
        files[name] = of_sentences(data_dir / "squad" / f"xquad-en-{name}-v1.1.json", tmp_path / f"{name}.json")
        (article,) = json.loads(files[name].read_text())["data"]
        files[name].write_text(json.dumps({"data": [{"paragraphs": article["paragraphs"][:count]}]}))
    files = {"train_file": files["train"], "predict_file": files["dev"]}
    scores = learned("run_squad", minilm, tmp_path, **files, max_seq_length=192, learning_rate=2e-4)
    assert next(iter(scores)) == "f1" and scores["f1"] > 0.15, scores


def sentences_with_entities(source: pathlib.Path, target: pathlib.Path, count: int) -> pathlib.Path:
    """Writes the first sentences of a file that have an entity."""
    sentences = re.split(r"\n\s*\n", source.read_text(encoding="utf-8"))
    found = [sentence for sentence in sentences if "\tB-" in sentence][:count]
    target.write_text("\n\n".join([*found, ""]), encoding="utf-8")
    return target


@pytest.mark.real
def test_a_published_checkpoint_learns_named_entities(data_dir, minilm, tmp_path):
    train, dev = (data_dir / "ner" / f"wnut17-{split}.conll" for split in ("train", "dev"))
    files = {
        "train_data_path": sentences_with_entities(train, tmp_path / "train", 440),
        "eval_data_path": sentences_with_entities(dev, tmp_path / "dev", 80),
    }
    scores = learned("run_ner", minilm, tmp_path, **files, max_seq_length=64, learning_rate=4e-4)
    assert next(iter(scores)) == "f1" and scores["f1"] > 0.15, f"chance finds no entities: {scores}"
