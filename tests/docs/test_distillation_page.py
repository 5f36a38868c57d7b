"""The commands of the page about distillation lead from a teacher to an exported student."""

import shlex
import subprocess

import pytest

from bert_tf.core.command_line import parse
from bert_tf.run_classifier import main as run_classifier
from bert_tf.tasks.classification.settings import ClassifierSettings
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.docs.test_task_pages import blocks, page

pytestmark = pytest.mark.slow
NAME = "tutorials/distillation"


def test_the_commands_lead_to_a_served_student(tmp_path, vocab_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pretrained(tmp_path / "uncased", vocab_file, num_hidden_layers=4, max_position_embeddings=128)
    (tmp_path / "reviews").mkdir()
    rows = [(f"{'the man said' if i % 2 else 'many years'} {i}", "good" if i % 2 else "bad") for i in range(64)]
    (tmp_path / "reviews/train.csv").write_text("text,label\n" + "".join(f"{t},{x}\n" for t, x in rows))
    (tmp_path / "more_reviews.csv").write_text("text\nthe woman said\npeople of the time\n")
    shared = ["--task_name=own", "--data_dir=reviews", "--dev_share=0.1", "--do_train"]
    run_classifier(parse(ClassifierSettings, [*shared, "--init_checkpoint=uncased", "--output_dir=reviews_model"]))
    (command,) = (line.strip() for line in page(NAME).splitlines() if line.startswith("    sed"))
    subprocess.run(["bash", "-c", command], check=True)
    assert '"num_hidden_layers": 3' in (tmp_path / "three_layers.json").read_text()
    for block in blocks(NAME):
        script, *words = shlex.split(block.replace("\\\n", " "))
        if script == "run_classifier":
            run_classifier(parse(ClassifierSettings, words))
        elif script == "export_saved_model":
            export_saved_model(parse(ExportSettings, words))
    assert (tmp_path / "models/small_int8/1/model.tflite").exists()
    assert (tmp_path / "models/small/1/saved_model.pb").exists()
    for name in ("small_alone", "small_model"):
        assert (tmp_path / name / "eval_results.txt").exists()
