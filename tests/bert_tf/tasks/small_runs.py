"""A small training run of each kind of task, for tests that compare devices and compilers."""

import json
import pathlib

from bert_tf.core.command_line import parse
from bert_tf.run_classifier import main as run_classifier
from bert_tf.run_embeddings import main as run_embeddings
from bert_tf.run_ner import main as run_ner
from bert_tf.run_squad import main as run_squad
from bert_tf.run_swag import main as run_swag
from bert_tf.tasks.choice.settings import SwagSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.embeddings.settings import EmbeddingSettings
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.tagging.settings import NerSettings
from tests.small_configs import small_config

WORDS = ("man", "woman", "time", "years", "people", "said")
# The main function, the settings, and the flags of each kind.
KINDS = {
    "classification": (run_classifier, ClassifierSettings, ("--task_name=own", "--train_data_path={}/texts.tsv")),
    "regression": (
        run_classifier,
        ClassifierSettings,
        ("--task_name=own", "--train_data_path={}/scores.tsv", "--regression", "--pooling=mean"),
    ),
    "questions": (run_squad, SquadSettings, ("--train_file={}/squad.json", "--max_query_length=8")),
    "tagging": (run_ner, NerSettings, ("--train_data_path={}/tags.txt",)),
    "tagging_bilstm": (run_ner, NerSettings, ("--train_data_path={}/tags.txt", "--bilstm_head")),
    "choice": (run_swag, SwagSettings, ("--train_data_path={}/choices.jsonl",)),
    "embeddings": (run_embeddings, EmbeddingSettings, ("--train_data_path={}/pairs.jsonl",)),
}


def write_data(folder: pathlib.Path) -> None:
    """Writes a configuration and the training data of all kinds."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(small_config(300, 32, 2).to_json_string())
    texts = [(f"the {WORDS[i % 6]} number {i}", ("bad", "good")[i % 2]) for i in range(32)]
    (folder / "texts.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in texts))
    (folder / "scores.tsv").write_text("text\tlabel\n" + "".join(f"{t}\t{i / 9}\n" for i, (t, _) in enumerate(texts)))
    tags = [f"{w} O\n{WORDS[i % 3]} B-PER\n{i} O\n" for i in range(16) for w in WORDS[:2]]
    (folder / "tags.txt").write_text("\n".join(tags))
    _jsonl(folder / "choices.jsonl", [
        {"context": f"the {WORDS[i % 6]}", "choices": [f"had {i}", "number"], "label": i % 2} for i in range(32)
    ])  # fmt: skip
    _jsonl(folder / "pairs.jsonl", [{"anchor": text, "positive": f"{text} again"} for text, _ in texts])
    paragraphs = []
    for number in range(16):
        context, word = f"they said {WORDS[number % 6]} {number} .", WORDS[number % 6]
        answers = [{"text": word, "answer_start": context.index(word, 9)}]
        asked = {"id": str(number), "question": f"what {number} ?", "answers": answers}
        paragraphs.append({"context": context, "qas": [asked]})
    (folder / "squad.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


def _jsonl(path: pathlib.Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def trained(kind: str, vocab_file: str, output: pathlib.Path, *more: str) -> list[dict]:
    """Trains four steps of a kind with dropout; returns the loss and the gradient norm of each step.

    The data is beside the output. The micro-batches have an odd size, so that no device computes them in parts, which
    have other dropout masks.
    """
    (main, settings, flags), data = KINDS[kind], output.with_name("data")
    write_data(data)
    main(parse(settings, [
        *(flag.format(data) for flag in flags), f"--bert_config_file={data}/config.json", f"--vocab_file={vocab_file}",
        f"--output_dir={output}", "--do_train", "--max_seq_length=32", "--train_batch_size=14",
        "--gradient_accumulation_steps=2", "--num_train_epochs=4",
        "--iterations_per_loop=1", "--learning_rate=1e-3", *more,
    ]))  # fmt: skip
    rows = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    names = ("loss", "gradient_norm")
    return [{name: row[name] for name in names} for row in rows if row["split"] == "train"][:4]
