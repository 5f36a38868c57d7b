"""The commands of docs/tutorials/pretraining.md, in order and unchanged, as a new user copies them."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/tutorials/pretraining.md"
COMMANDS = ("awk", "learn_vocab", "create_pretraining_data", "bert_config", "run_pretraining")
# Flags that make the commands small. The test appends them, because absl takes the last of two values.
SMALL = """
set -e
learn_vocab() { command learn_vocab "$@" $([[ "$*" == *extend* ]] && echo --vocab_size=40 || echo --vocab_size=400); }
run_pretraining() {
  command run_pretraining "$@" --num_train_steps=3 --num_warmup_steps=1 --train_batch_size=8 --max_eval_steps=1
}
"""


def blocks() -> list[str]:
    """Returns the page's blocks of commands."""
    found = re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub("^ {4}", "", block, flags=re.MULTILINE) for block in found if block.split()[0] in COMMANDS]


@pytest.mark.slow
def test_the_pages_commands_run_in_their_order(corpus_file, tmp_path):
    (tmp_path / "corpus.txt").write_text(pathlib.Path(corpus_file).read_text() * 5)
    (tmp_path / "uncased").mkdir()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "uncased/vocab.txt").write_text("".join(f"{token}\n" for token in [*special, *"aehinorst"]))
    commands = blocks()
    assert [command.split()[0] for command in commands] == [
        "awk", "learn_vocab", "create_pretraining_data", "bert_config",
    ]  # fmt: skip
    environment = os.environ | {"PATH": f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", SMALL + command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert (tmp_path / "pretrained/report.html").exists()
