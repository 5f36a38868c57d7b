"""Each task in the folder of real data, from a published checkpoint to scores far above chance."""

import pathlib

import pytest

from benchmarks.question_sentences import of_sentences
from bert_tf.core.command_line import parse
from bert_tf.run_classifier import main as run_classifier
from bert_tf.run_ner import main as run_ner
from bert_tf.run_squad import main as run_squad
from bert_tf.run_swag import main as run_swag
from bert_tf.tasks.choice.settings import SwagSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.tagging.settings import NerSettings

# Task, lines of train.tsv, epochs, learning rate, main metric, and a bound between chance and the scores of some seeds.
TASKS = [
    ("SST-2", 3000, 1, 1e-4, "accuracy", 0.75),
    ("STS-B", 5749, 2, 5e-5, "pearson", 0.6),
]


def shortened(source: pathlib.Path, folder: pathlib.Path, lines: int) -> pathlib.Path:
    """Writes dev.tsv and the first lines of train.tsv into a folder."""
    folder.mkdir()
    (folder / "dev.tsv").write_bytes((source / "dev.tsv").read_bytes())
    train = (source / "train.tsv").read_bytes().splitlines(keepends=True)
    (folder / "train.tsv").write_bytes(b"".join(train[: lines + 1]))
    return folder


@pytest.mark.real
@pytest.mark.parametrize(
    ("task", "lines", "epochs", "rate", "metric", "bound"), TASKS, ids=[task for task, *_ in TASKS]
)
def test_a_published_checkpoint_learns_the_task(data_dir, minilm, tmp_path, task, lines, epochs, rate, metric, bound):
    scores = run_classifier(
        parse(
            ClassifierSettings,
            [f"--task_name={task}", f"--data_dir={shortened(data_dir / 'glue' / task, tmp_path / 'data', lines)}",
             f"--init_checkpoint={minilm}", f"--output_dir={tmp_path / 'run'}", f"--num_train_epochs={epochs}",
             "--do_train", "--do_eval", "--adam_bias_correction", "--train_batch_size=16", f"--learning_rate={rate}",
             "--eval_batch_size=32"],
        )
    )  # fmt: skip
    assert next(iter(scores)) == metric and scores[metric] > bound, scores


@pytest.mark.real
def test_a_published_checkpoint_learns_to_continue_texts(data_dir, minilm, tmp_path):
    train, dev = (data_dir / "swag" / f"continuations-{split}.csv" for split in ("train", "dev"))
    first = tmp_path / "train.csv"
    first.write_bytes(b"".join(train.read_bytes().splitlines(keepends=True)[:801]))
    scores = run_swag(
        parse(
            SwagSettings,
            [f"--train_data_path={first}", f"--eval_data_path={dev}", "--max_seq_length=128",
             f"--init_checkpoint={minilm}", f"--output_dir={tmp_path / 'run'}", "--num_train_epochs=1",
             "--do_train", "--do_eval", "--adam_bias_correction", "--train_batch_size=8", "--learning_rate=5e-5"],
        )
    )  # fmt: skip
    assert next(iter(scores)) == "accuracy" and scores["accuracy"] > 0.5, f"chance is 0.25: {scores}"


@pytest.mark.real
def test_wnli_submits_the_majority_class_of_its_training_data(data_dir, minilm, tmp_path):
    run_classifier(
        parse(
            ClassifierSettings,
            ["--task_name=WNLI", f"--data_dir={data_dir / 'glue' / 'WNLI'}", f"--init_checkpoint={minilm}",
             f"--output_dir={tmp_path}", "--num_train_epochs=0.1", "--do_train", "--do_predict"],
        )
    )  # fmt: skip
    lines = (tmp_path / "WNLI.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 147
    train = (data_dir / "glue" / "WNLI" / "train.tsv").read_text().splitlines()[1:]
    labels = [line.rsplit("\t", 1)[1] for line in train]
    assert {line.split("\t")[1] for line in lines[1:]} == {max(set(labels), key=labels.count)}


@pytest.mark.real
def test_a_published_checkpoint_learns_to_answer_questions(data_dir, minilm, tmp_path):
    """For comparison: the whole sentence has F1 0.21; a random span has F1 0.12 and exact match 0.01."""
    files = {name: of_sentences(data_dir / "squad" / f"xquad-en-{name}-v1.1.json", tmp_path / f"{name}.json")
             for name in ("train", "dev")}  # fmt: skip
    scores = run_squad(
        parse(
            SquadSettings,
            [f"--train_file={files['train']}", f"--predict_file={files['dev']}", f"--init_checkpoint={minilm}",
             f"--output_dir={tmp_path / 'run'}", "--num_train_epochs=3", "--train_batch_size=8", "--eval_batch_size=16",
             "--max_seq_length=192", "--learning_rate=1.5e-4", "--adam_bias_correction", "--do_train", "--do_eval"],
        )
    )  # fmt: skip
    assert next(iter(scores)) == "f1" and scores["f1"] > 0.3, scores
    assert scores["exact_match"] > 0.15, scores


def first_sentences(source: pathlib.Path, target: pathlib.Path, lines: int) -> pathlib.Path:
    """Writes the first lines of a file, up to the end of a sentence."""
    found = source.read_bytes().splitlines(keepends=True)
    target.write_bytes(b"".join(found[: found.index(b"\n", lines)] if lines < len(found) else found))
    return target


# Files, lines of the training file, and a bound above chance, which finds no entities.
NER = [("wnut17-{}.conll", ("train", "dev"), 30_000, 0.15), ("conll2002-esp.{}", ("train", "testa"), 30_000, 0.1)]


@pytest.mark.real
@pytest.mark.parametrize(("names", "splits", "lines", "bound"), NER, ids=["WNUT-17", "CoNLL-2002"])
def test_a_published_checkpoint_learns_named_entities(data_dir, minilm, tmp_path, names, splits, lines, bound):
    train, dev = (data_dir / "ner" / names.format(split) for split in splits)
    scores = run_ner(
        parse(
            NerSettings,
            [f"--train_data_path={first_sentences(train, tmp_path / 'train', lines)}",
             f"--eval_data_path={first_sentences(dev, tmp_path / 'dev', 8_000)}", f"--init_checkpoint={minilm}",
             f"--output_dir={tmp_path / 'run'}", "--num_train_epochs=1", "--do_train", "--do_eval",
             "--adam_bias_correction", "--learning_rate=1e-4", "--train_batch_size=8", "--eval_batch_size=32",
             "--max_seq_length=64"],
        )
    )  # fmt: skip
    assert next(iter(scores)) == "f1" and scores["f1"] > bound, scores
