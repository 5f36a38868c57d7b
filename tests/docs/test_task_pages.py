"""The commands, programs and messages of the pages about fine-tuning tasks."""

import pathlib
import re
import shlex

import pytest

from bert_tf import run_classifier
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.settings import ConversionSettings, FeaturesSettings, GlueSubmissionSettings, ScoringSettings
from bert_tf.tasks.choice.settings import SwagSettings
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.embeddings.settings import EmbeddingSettings, MiningSettings
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.tasks.tagging.settings import NerSettings
from export.serve.settings import ServeSettings
from export.settings import ExportSettings

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
# Pages with commands.
PAGES = (
    "tutorials/fine_tuning", "how_to/classification", "how_to/long_texts", "how_to/glue", "tutorials/choices",
    "tutorials/questions", "tutorials/entities", "how_to/other_data", "how_to/score_text", "tutorials/search",
    "tutorials/distillation",
    "tutorials/embeddings",
)  # fmt: skip
MESSAGES = "how_to/troubleshooting"
SCRIPTS = {
    "convert_checkpoint": ConversionSettings,
    "run_classifier": ClassifierSettings,
    "run_swag": SwagSettings,
    "run_embeddings": EmbeddingSettings,
    "mine_negatives": MiningSettings,
    "run_squad": SquadSettings,
    "run_ner": NerSettings,
    "export_saved_model": ExportSettings,
    "serve_saved_model": ServeSettings,
    "extract_features": FeaturesSettings,
    "glue_submission": GlueSubmissionSettings,
    "score_text": ScoringSettings,
}


def page(name: str) -> str:
    """Returns the text of a page."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(name: str) -> list[str]:
    """Returns the commands and Python programs of a page."""
    found = re.findall(r"(?:^ {4}.*\n)+|^```python\n[\s\S]*?^```$", page(name), re.MULTILINE)
    return [block for block in found if block.startswith("```") or block.split()[0] in SCRIPTS]


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_and_programs_of_a_page_are_valid(name, tmp_path, monkeypatch):
    """The kinds' own tests run such commands on data."""
    monkeypatch.chdir(tmp_path)
    assert blocks(name)
    for block in blocks(name):
        if block.startswith("```"):
            compile(block.removeprefix("```python\n").removesuffix("```"), f"{name}.md", "exec")
        else:
            script, *words = shlex.split(block.replace("\\\n", " "))
            parse(SCRIPTS[script], words)


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


def write(path: str, content: str) -> None:
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(content)


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
