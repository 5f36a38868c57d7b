"""The README's commands, in their order and to the letter, as a new user copies them."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"
COMMANDS = (
    "learn_vocab",
    "create_pretraining_data",
    "python",
    "run_pretraining",
    "run_classifier",
    "export_saved_model",
)
# Flags that make the commands small. They stand outside of the text: of two values of a flag, absl takes the last.
SMALL = """
set -e
learn_vocab() { command learn_vocab "$@" $([[ "$*" == *extend* ]] && echo --vocab_size=40 || echo --vocab_size=400); }
run_pretraining() {
  command run_pretraining "$@" --num_train_steps=3 --num_warmup_steps=1 --train_batch_size=8 --max_eval_steps=1
}
run_classifier() { command run_classifier "$@" --max_seq_length=32; }
"""


def blocks(first: str, last: str) -> list[str]:
    """The indented blocks of commands, and the Python blocks, between two headings."""
    text = README.read_text(encoding="utf-8")
    section = text[text.index(first) : text.index(last)]
    found = re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+|^```python\n[\s\S]*?^```$", section, re.MULTILINE)
    commands = []
    for block in found:
        if block.startswith("```"):
            commands.append("python - <<'END'\n" + block.removeprefix("```python\n").removesuffix("```") + "END\n")
        elif block.split()[0] in COMMANDS:
            commands.append(re.sub("^ {4}", "", block, flags=re.MULTILINE))
    return commands


@pytest.mark.slow
def test_the_readmes_commands_run_in_their_order(corpus_file, tmp_path):
    (tmp_path / "corpus.txt").write_text(pathlib.Path(corpus_file).read_text() * 5)
    (tmp_path / "uncased").mkdir()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "uncased/vocab.txt").write_text("".join(f"{token}\n" for token in [*special, *"aehinorst"]))
    (tmp_path / "reviews").mkdir()
    for split in ("train", "dev", "test"):
        lines = [f"the {'man' if i % 2 else 'word'} said so\t{'good' if i % 2 else 'bad'}\n" for i in range(40)]
        (tmp_path / f"reviews/{split}.tsv").write_text("text\tlabel\n" + "".join(lines))
    commands = blocks("## On your own text", "## Text formats and options")
    assert [command.split()[0] for command in commands] == [
        "learn_vocab", "learn_vocab", "create_pretraining_data", "python", "run_classifier", "export_saved_model",
        "python",
    ]  # fmt: skip
    environment = os.environ | {"PATH": f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", SMALL + command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "label" in done.stdout
    assert (tmp_path / "reviews_model/test_predictions.tsv").exists() and (tmp_path / "pretrained/report.html").exists()
