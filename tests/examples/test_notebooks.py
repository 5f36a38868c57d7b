"""The notebooks, executed as a user executes them, with a tiny checkpoint where they would download one."""

import itertools
import os
import pathlib
import re
import sys

import nbformat
import pytest
import tensorflow as tf
from nbclient import NotebookClient

from bert_tf.pretraining.objective import BertPretrainer
from tests.small_configs import small_config

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples"


def execute(notebook) -> None:
    resources = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=600, resources=resources, coalesce_streams=True, record_timing=False).execute()


def executed(name: str, **changes: str) -> list:
    """Runs a notebook; returns its cells of code. `changes` are other values of flags."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    for cell, (flag, value) in itertools.product(notebook.cells, changes.items()):
        cell.source = re.sub(rf"--{flag}=\d+", f"--{flag}={value}", cell.source)
    execute(notebook)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell, stream: str = "stdout") -> str:
    return "".join(output.get("text", "") for output in cell.outputs if output.get("name") == stream)


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.slow
def test_fine_tune_and_serve(vocab_file, tmp_path, monkeypatch):
    config = small_config(initializer_range=0.1)
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    (tmp_path / "vocab.txt").write_text(pathlib.Path(vocab_file).read_text())
    tf.train.Checkpoint(model=BertPretrainer(config)).write(f"{tmp_path}/ckpt")
    monkeypatch.setenv("CHECKPOINT", str(tmp_path))
    cells = executed("fine_tune_and_serve.ipynb")
    shown = printed(cells[2], "stderr")
    assert "your texts dev, step" in shown and "finished: accuracy" in shown and "reviews_model/report.html" in shown
    assert "Logging before flag parsing" not in shown and re.search(r"train \d+/\d+ steps, ", shown), "a progress bar"
    labels = [line.split()[0] for line in printed(cells[3]).splitlines()]
    assert len(labels) == 2 and set(labels) <= {"good", "bad"}
    assert [line.split()[0] for line in printed(cells[5]).splitlines()] == labels, "the server answers as the model"
    assert cells[6].outputs[0]["data"]["text/plain"] == "0", "the server ends without an error"


@pytest.mark.slow
def test_pretrain_on_your_text():
    cells = executed("pretrain_on_your_text.ipynb", num_train_steps="40", num_warmup_steps="4", dupe_factor="1")
    assert "step 40/40" in printed(cells[3])
    assert "image/png" in cells[4].outputs[-1]["data"]
    assert printed(cells[5]).count('"blanks"') == 2


if __name__ == "__main__":  # stores the outputs of both notebooks in their files
    for path in FOLDER.glob("*.ipynb"):
        stored = nbformat.read(path, as_version=4)
        execute(stored)
        nbformat.write(stored, path)
