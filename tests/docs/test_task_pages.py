"""The unchanged commands of the pages about fine-tuning tasks, with tiny data and a tiny checkpoint.

They run within the test's process, since each new process would import TensorFlow again.
"""

import json
import pathlib
import re
import shlex

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf import (
    extract_features,
    glue_submission,
    mine_negatives,
    run_classifier,
    run_embeddings,
    run_ner,
    run_squad,
    run_swag,
    score_text,
)  # fmt: skip
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.settings import ConversionSettings, FeaturesSettings, GlueSubmissionSettings, ScoringSettings
from bert_tf.tasks.choice.settings import SwagSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.embeddings.settings import EmbeddingSettings, MiningSettings
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.tagging.settings import NerSettings
from export import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.tasks.classification.glue_files import MNLI, MNLI_DEV, NLI, mnli, write_files
from tests.bert_tf.tasks.classification.glue_runs import make_run
from tests.bert_tf.tasks.classification.test_inference_tasks import write_snli
from tests.small_configs import small_config

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
# Pages with commands, in an order in which later pages find the files of earlier pages.
PAGES = (
    "tutorials/fine_tuning", "how_to/classification", "how_to/long_texts", "how_to/glue", "tutorials/choices",
    "tutorials/questions", "tutorials/entities", "how_to/other_data", "how_to/score_text", "tutorials/search",
    "tutorials/embeddings",
)  # fmt: skip
MESSAGES = "how_to/troubleshooting"
SCRIPTS = {
    "convert_checkpoint": (ConversionSettings, lambda settings: None),  # it downloads, so only its flags are checked
    "run_classifier": (ClassifierSettings, run_classifier.main),
    "run_swag": (SwagSettings, run_swag.main),
    "run_embeddings": (EmbeddingSettings, run_embeddings.main),
    "mine_negatives": (MiningSettings, mine_negatives.main),
    "run_squad": (SquadSettings, run_squad.main),
    "run_ner": (NerSettings, run_ner.main),
    "export_saved_model": (ExportSettings, export_saved_model.main),
    "extract_features": (FeaturesSettings, extract_features.main),
    "glue_submission": (GlueSubmissionSettings, glue_submission.main),
    "score_text": (ScoringSettings, score_text.main),
}
# Parts of the page that a tiny model and few examples cannot show in seconds.
_ONE_EPOCH = ["--num_train_epochs=1", "--train_batch_size=12"]
SMALL = {
    "run_classifier": _ONE_EPOCH,
    "run_swag": _ONE_EPOCH,
    "run_embeddings": _ONE_EPOCH,
    "extract_features": ["--num_workers=1"],
    "score_text": ["--num_workers=1"],
    "run_squad": ["--num_train_epochs=1", "--train_batch_size=12", "--max_seq_length=128"],
    "run_ner": ["--num_train_epochs=1", "--train_batch_size=4"],
}
CLASSES = ("entailment", "neutral", "contradiction")


def page(name: str) -> str:
    """Returns the text of a page."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(name: str) -> list[str]:
    """Returns the commands and Python programs of a page."""
    found = re.findall(r"(?:^ {4}.*\n)+|^```python\n[\s\S]*?^```$", page(name), re.MULTILINE)
    return [block for block in found if block.startswith("```") or block.split()[0] in SCRIPTS]


def run(block: str) -> None:
    if block.startswith("```"):
        exec(compile(block.removeprefix("```python\n").removesuffix("```"), "page.md", "exec"), {})
        return
    words = shlex.split(block.replace("\\\n", " "))
    settings_class, main = SCRIPTS[words[0]]
    small = [] if "--sweep" in words else SMALL.get(words[0], [])
    main(parse(settings_class, [*words[1:], *small]))


def text(number: int) -> str:
    return f"{('the man said so', 'not one of these')[number % 2]} {'now ' * (number % 7)}{number}"


def write(path: str, content: str) -> None:
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(content)


def write_checkpoint(vocab_file: str, name: str, layers: int, **changes) -> None:
    config = small_config(300, 16, layers, max_position_embeddings=128, initializer_range=0.1, **changes)
    write(f"{name}/bert_config.json", config.to_json_string())
    write(f"{name}/vocab.txt", pathlib.Path(vocab_file).read_text())
    tf.train.Checkpoint(model=BertPretrainer(config)).write(f"{name}/ckpt")


def write_own_data() -> None:
    label = ("good", "bad")
    for split, count in {"train": 108, "test": 12}.items():
        numbers = (*range(count), 0, 1)
        write(f"reviews/{split}.csv", "text,label\n" + "".join(f"{text(i)},{label[i % 2]}\n" for i in numbers))
    write("sentences.txt", "the man said so\n\nnot one of these\n")
    write("blanks.txt", "the [MASK] said so\n")
    write("texts.txt", "".join(f"{text(i)}\n" for i in range(30)))
    write("new.csv", "text\nA warm film\nI left\n")
    sets = [["sport"], ["sport", "money"], []]
    lines = [json.dumps({"text": text(i), "label": sets[i % 3]}) for i in range(24)]
    for split in ("train", "dev", "test"):
        write(f"topics/{split}.jsonl", "\n".join(lines) + "\n")
        write(f"stars/{split}.csv", "text,stars\n" + "".join(f"{text(i)},{i % 2 + i / 10}\n" for i in range(24)))
        stories = [{"context": text(i), "choices": ["it is so", "no", text(i)][i % 2 :], "label": 0} for i in range(24)]
        write(f"stories/{split}.jsonl", "".join(json.dumps(story) + "\n" for story in stories))
        pairs = [f"{text(i)},that is {i},{('yes', 'no')[i % 2]}\n" for i in range(24)]
        conll = split.replace("dev", "valid")
        write(f"conll2003/{conll}.txt", "-DOCSTART- -X- O O\n\n" + "the NN O O\nman NN O I-PER\n\n" * 8)
        write(f"answers/{split}.csv", "question,answer,fits\n" + "".join(pairs))


def write_pairs() -> None:
    """Writes pairs, and a collection of the same texts."""
    pairs = [(text(i), f"that is {i}") for i in range(24)]
    lines = [json.dumps({"anchor": anchor, "positive": positive}) for anchor, positive in pairs]
    write("pairs.jsonl", "\n".join(lines) + "\n")
    for name, texts in zip(("queries", "corpus"), zip(*pairs, strict=True), strict=True):
        lines = [json.dumps({"_id": str(i), "text": text}) for i, text in enumerate(texts)]
        write(f"collection/{name}.jsonl", "\n".join(lines) + "\n")
    write("collection/qrels/dev.tsv", "query-id\tcorpus-id\tscore\n" + "".join(f"{i}\t{i}\t1\n" for i in range(24)))


def write_questions() -> None:
    for version in ("1.1", "2.0"):
        paragraphs = []
        for number in range(12):
            answers = [] if version == "2.0" and number % 3 == 0 else [{"text": "said so", "answer_start": 8}]
            asked = {"id": str(number), "question": "what?", "answers": answers, "is_impossible": not answers}
            paragraphs.append({"context": f"the man said so {text(number)}", "qas": [asked]})
        for split in ("train", "dev"):
            write(f"squad/{split}-v{version}.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))


def write_glue(folder: pathlib.Path) -> None:
    mnli_lines = [(i, text(i), "it is so", CLASSES[i % 3]) for i in range(32)]
    header = f"{MNLI}\tlabel1\tgold_label\n"
    train = header + "".join(mnli(i, a, b, label, label) for i, a, b, label in mnli_lines)
    dev = MNLI_DEV + "".join(mnli(i, a, b, *["neutral"] * 5, label) for i, a, b, label in mnli_lines[:6])
    (folder / "glue").mkdir()
    write_files(folder / "glue/MNLI", "MNLI", **{"train.tsv": train, "dev_matched.tsv": dev})
    rte = f"{NLI}\tlabel\n" + "".join(f"{i}\t{text(i)}\tb\t{'not_' * (i % 2)}entailment\n" for i in range(32))
    write_files(folder / "glue/RTE", "RTE", **{"train.tsv": rte, "dev.tsv": rte})
    write_files(folder / "glue/WNLI", "WNLI")
    write_files(folder / "glue/AX", "AX", **{"../MNLI/train.tsv": train})
    (folder / "runs").mkdir()
    metrics = {"QQP": "f1", "QNLI": "accuracy", "SST-2": "accuracy", "CoLA": "matthews_correlation"}
    for task, metric in (metrics | {"STS-B": "spearman", "MRPC": "f1"}).items():
        make_run(folder / "runs" / task, task, [task], **{metric: 0.5})


@pytest.mark.slow
def test_the_pages_commands_run_in_their_order(vocab_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(vocab_file, "uncased", 2)
    write_checkpoint(vocab_file, "cased", 4)
    write_checkpoint(vocab_file, "gpt", 2, directionality="ltr")
    write_own_data()
    write_pairs()
    write_questions()
    write_glue(tmp_path)
    (tmp_path / "snli_1.0").mkdir()
    write_snli(tmp_path / "snli_1.0", 24)
    found = {name: blocks(name) for name in PAGES}
    assert all(found.values()) and sum(map(len, found.values())) > 20
    with tfds.testing.mock_data(num_examples=20):
        for name, commands in found.items():
            if name == "tutorials/embeddings":  # its commands read four layers
                write_checkpoint(vocab_file, "uncased", 4)
            for block in commands:
                run(block)
    assert "good [" in (printed := capsys.readouterr().out) or "bad [" in printed
    for path in (
        "reviews_model/report.html",
        "topics_model/thresholds.json",
        "stories_model/test_predictions.jsonl",
        "runs/MNLI/AX.tsv",
        "submission.zip",
        "scores.jsonl",
        "mined.jsonl",
        "mined_model/report.html",
        "documents.parquet",
        "served/search/1/saved_model.pb",
        "guesses.jsonl",
        "zero_shot/eval_results.txt",
        "squad_model/predictions.json",
        "squad2_model/null_threshold.json",
        "squad_ensemble/ensemble.json",
        "ner/test_predictions.txt",
        "ner_features/dev_scores.txt",
    ):
        assert (tmp_path / path).exists(), path


# The flags that cause the messages of the page's table, in its order.
CAUSES = (
    "--data_dir=none",
    "--data_dir=reviews --text_a_column=review",
    "--data_dir=comma",
    "--data_dir=empty",
    "--data_dir=quoted",
    "--data_dir=numbers",
    "--data_dir=reviews --init_checkpoint=nowhere",
    "--data_dir=reviews",
)


def test_the_pages_messages_are_those_of_the_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("reviews/train.csv", "text,label\na,good\nb,bad\n")
    write("comma/train.csv", "text,label\na,good\nb, c,bad\n")
    write("empty/train.csv", "text,label\na,good\nb,\n")
    write("quoted/train.tsv", 'text\tlabel\n"a"\tgood\n"b"\tbad\n')
    write("numbers/train.csv", "text,label\n" + "".join(f"a{i},{i}.5\n" for i in range(30)))
    messages = re.findall(r"^\| `(.*?)` \|", page(MESSAGES).partition("| message |")[2], re.MULTILINE)
    for flags, message in zip(CAUSES, messages, strict=False):
        with pytest.raises(InputError, match=re.escape(message)):
            flags = ["--task_name=own", "--do_train", "--output_dir=out", *flags.split()]
            run_classifier.main(parse(ClassifierSettings, flags))
