"""One task of each kind on real data, from a published checkpoint to scores.

Scores beside other programs are in `benchmarks/`.
"""

import json
import pathlib
import re

import pytest

from benchmarks.question_sentences import of_sentences
from bert_tf.core.command_line import parse
from bert_tf.run_ner import main as run_ner
from bert_tf.run_squad import main as run_squad
from bert_tf.run_swag import main as run_swag
from bert_tf.tasks.choice.settings import SwagSettings
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.tagging.settings import NerSettings


@pytest.mark.real
def test_published_checkpoint_learns_continuations(data_dir, minilm, tmp_path):
    for split, rows in (("train", 160), ("dev", 60)):
        lines = (data_dir / "swag" / f"continuations-{split}.csv").read_bytes().splitlines(keepends=True)
        (tmp_path / f"{split}.csv").write_bytes(b"".join(lines[: rows + 1]))
    scores = run_swag(
        parse(
            SwagSettings,
            [f"--train_data_path={tmp_path}/train.csv", f"--eval_data_path={tmp_path}/dev.csv", "--max_seq_length=64",
             f"--init_checkpoint={minilm}", f"--output_dir={tmp_path / 'run'}", "--num_train_epochs=1",
             "--do_train", "--do_eval", "--train_batch_size=8", "--learning_rate=3e-4"],
        )
    )  # fmt: skip
    assert next(iter(scores)) == "accuracy" and scores["accuracy"] > 0.4, f"chance is 0.25: {scores}"


@pytest.mark.real
def test_published_checkpoint_learns_to_answer(data_dir, minilm, tmp_path):
    """For comparison: a random span has F1 0.12."""
    files = {}
    for name, count in (("train", 300), ("dev", 70)):
        files[name] = of_sentences(data_dir / "squad" / f"xquad-en-{name}-v1.1.json", tmp_path / f"{name}.json")
        (article,) = json.loads(files[name].read_text())["data"]
        files[name].write_text(json.dumps({"data": [{"paragraphs": article["paragraphs"][:count]}]}))
    scores = run_squad(
        parse(
            SquadSettings,
            [f"--train_file={files['train']}", f"--predict_file={files['dev']}", f"--init_checkpoint={minilm}",
             f"--output_dir={tmp_path / 'run'}", "--num_train_epochs=1", "--train_batch_size=8", "--eval_batch_size=16",
             "--max_seq_length=192", "--learning_rate=2e-4", "--do_train", "--do_eval"],
        )
    )  # fmt: skip
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
    scores = run_ner(
        parse(
            NerSettings,
            [f"--train_data_path={sentences_with_entities(train, tmp_path / 'train', 440)}",
             f"--eval_data_path={sentences_with_entities(dev, tmp_path / 'dev', 80)}", f"--init_checkpoint={minilm}",
             f"--output_dir={tmp_path / 'run'}", "--num_train_epochs=1", "--do_train", "--do_eval",
             "--learning_rate=4e-4", "--train_batch_size=8", "--eval_batch_size=32",
             "--max_seq_length=64"],
        )
    )  # fmt: skip
    assert next(iter(scores)) == "f1" and scores["f1"] > 0.15, f"chance finds no entities: {scores}"
