"""The commands and the program of docs/coming_from.md, unchanged, with the small files of another library."""

import pathlib
import re
import shlex

import numpy as np
import pytest

from bert_tf import run_classifier
from bert_tf.conversion import convert_checkpoint
from bert_tf.core.command_line import parse
from bert_tf.settings import ConversionSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from export import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.classification import make_task
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import put_together

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/coming_from.md"
SCRIPTS = {
    "convert_checkpoint": (ConversionSettings, convert_checkpoint),
    "run_classifier": (ClassifierSettings, run_classifier.main),
    "export_saved_model": (ExportSettings, export_saved_model.main),
}


@pytest.mark.slow
def test_the_commands_of_the_page_run(vocab_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pretrained(tmp_path / "pretrained", vocab_file)
    put_together(tmp_path / "run", vocab_file, make_task(2, has_pairs=False), spread=0.1)
    for run, theirs in (("pretrained", "their_model"), ("run", "their_classifier")):
        flags = {"do_lower_case": True, "format": "hugging_face"}
        convert_checkpoint(ConversionSettings(input=run, output=theirs, **flags))
        (tmp_path / theirs / "conversion.json").unlink()
    (tmp_path / "reviews.tsv").write_text("text\tlabel\nthe man\tpositive\nall of\tnegative\n")
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^ {4}\S.*\n(?:^ {6,}.*\n)*)", page, re.MULTILINE)
    commands = [shlex.split(block.replace("\\\n", " ")) for block in blocks]
    assert [name for name, *_ in commands] == ["convert_checkpoint", "export_saved_model", "run_classifier"]
    for name, *words in commands:
        settings_class, main = SCRIPTS[name]
        main(parse(settings_class, [*words, *(["--max_seq_length=24"] if name == "run_classifier" else [])]))
    for path in ("my_model/vocab.txt", "served/my_classifier/1/saved_model.pb", "my_classifier/eval_results.txt"):
        assert (tmp_path / path).exists(), path

    program = re.search(r"^```python\n([\s\S]*?)^```$", page, re.MULTILINE)[1]
    names = {}
    exec(compile(program.replace("sequence_length=128", "sequence_length=24"), "page.md", "exec"), names)
    again = names["keras"].models.load_model("model.keras")
    texts = names["tf"].constant(["the man said", "all of you"])
    np.testing.assert_allclose(again(texts), names["model"](texts), atol=1e-6)
