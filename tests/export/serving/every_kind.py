"""A small untrained export of every kind."""

import json
import pathlib

from bert_tf.tasks.choice.choice_task import ChoiceTask
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_task import SquadTask
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.bert_tf import tagging
from tests.bert_tf.classification import make_task
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.export.exports import put_together

# Good inputs by the names of the models.
GOOD = {
    "classes": {"text_a": ["the man said", "word"]},
    "pairs": {"text_a": ["the man said", "word"], "text_b": ["he was there", ""]},
    "score": {"text_a": ["the man said", "word"]},
    "sets": {"text_a": ["the man said", "word"]},
    "spans": {"question": ["what said", "who"], "context": ["the man said they had all", "all of you"]},
    "tags": {"text": ["the man said", "word, all of it!"]},
    "choices": {"context": ["the man said", "all"], "start": ["he", ""], "choices": [["was", "is"], ["of", ""]]},
    "fill_mask": {"text": ["the [MASK] said", "all of [MASK] [MASK]"]},
    "embeddings": {"text": ["the man said", "word"]},
}
TASKS = {
    "classes": lambda: make_task(3, has_pairs=False),
    "pairs": lambda: make_task(2),
    "score": lambda: make_task(0, has_pairs=False),
    "sets": lambda: make_task(2, has_pairs=False),
    "spans": lambda: SquadTask(Decoding(), 8, 10),
    "tags": tagging.make_task,
    "choices": lambda: ChoiceTask(),
}


def write_export(folder: pathlib.Path, vocab_file: str, name: str) -> str:
    """Writes the model of a name; returns its folder."""
    run, options = folder / f"{name}-run", {}
    if name in TASKS:
        put_together(run, vocab_file, TASKS[name](), spread=0.3)
    else:
        write_pretrained(run, vocab_file)
        options = {"task_name": name} | ({"top_k": 10**6} if name == "fill_mask" else {})  # one per token
    if name == "sets":
        described = json.loads((run / "task.json").read_text())
        (run / "task.json").write_text(json.dumps(described | {"kind": "multi_label"}))
    export_saved_model(ExportSettings(checkpoint_dir=str(run), export_dir=str(folder / name), **options))
    return str(folder / name)
