"""The example in the README, from a CSV file to an answer of the server, with tiny data and a tiny checkpoint."""

import json
import pathlib
import re
import shlex

import pytest

from bert_tf import run_classifier
from bert_tf.core.command_line import parse
from bert_tf.tasks.classification.settings import ClassifierSettings
from export import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.serving.running import running

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def blocks() -> list[list[str]]:
    """Returns the words of each command in the example, and the lines of the data."""
    section = README.read_text(encoding="utf-8").partition("## From a CSV file")[2].partition("## Tasks")[0]
    found = re.findall(r"(?:^ {4}.*\n)+", section, re.MULTILINE)
    return [shlex.split(block.replace("\\\n", " "), posix=True) for block in found[1:]]


@pytest.mark.slow
def test_the_example_leads_from_data_to_an_answer(vocab_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = tmp_path / "published"
    write_pretrained(checkpoint, vocab_file, max_position_embeddings=128)
    (tmp_path / "reviews").mkdir()
    rows = [f"the {'man' if i % 2 else 'word'} said so {i},{'good' if i % 2 else 'bad'}\n" for i in range(40)]
    (tmp_path / "reviews/train.csv").write_text("text,label\n" + "".join(rows))

    _, classifier, exporter, server, curl = blocks()
    assert classifier[0] == "run_classifier" and "--init_checkpoint=hf://google-bert/bert-base-uncased" in classifier
    run_classifier.main(parse(ClassifierSettings, [*classifier[1:], f"--init_checkpoint={checkpoint}"]))
    assert (tmp_path / "reviews_model/report.html").exists()
    assert exporter[0] == "export_saved_model"
    export_saved_model.main(parse(ExportSettings, exporter[1:]))
    assert server[0] == "serve_saved_model"
    with running(*server[1:]) as started:
        status, _, answer = started.http("POST", curl[3].partition(":8501")[2], curl[2].encode())
    assert status == 200 and json.loads(answer)["predictions"][0]["label"] in ("good", "bad")
