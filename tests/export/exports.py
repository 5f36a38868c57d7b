"""Small untrained runs to export."""

import shutil

import tensorflow as tf
import tf_keras as keras

from bert_tf.finetuning import description
from bert_tf.finetuning.model import FineTunedBert, head_maker
from bert_tf.runs import checkpoint_folder
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests.small_configs import small_config

PAIRS = [
    ("the man said", "he was there"), ("all of you", "they had"), ("", "word"), ("word", ""), ("", ""),
    ("Ünïcödé ΑΣ \u200b x", "中文 (test)"), ("very " * 40, "long " * 40), ("a", "b c d"),
]  # fmt: skip

CONFIG = small_config(initializer_range=0.2)


def put_together(run, vocab_file, task, length=24, bilstm_head=False, spread=0.0, config=CONFIG):
    """Makes the folder of an untrained run; returns its model, whose weights are random around their initial values."""
    keras.utils.set_random_seed(3)  # module fixtures are created before the seed of a test is set
    model = FineTunedBert(config, head_maker(task.head, bilstm_head))
    random = tf.random.Generator.from_seed(5)
    for variable in model.variables if spread else ():  # including biases, which are initially zero
        variable.assign(variable + random.normal(variable.shape, stddev=spread))
    checkpoint = tf.train.Checkpoint(model=model, global_step=tf.Variable(1, dtype=tf.int64))
    checkpoint_folder.save(str(run), checkpoint, 1)
    (run / "bert_config.json").write_text(config.to_json_string())
    shutil.copy(vocab_file, run / "vocab.txt")
    description.write(str(run), description.describe(task, length, bilstm_head))
    return model


def export(run, **settings):
    """Exports a run's folder and loads the export."""
    target = settings.pop("export_dir", str(run.parent / "model/1"))
    export_saved_model(ExportSettings(checkpoint_dir=str(run), export_dir=target, **settings))
    return tf.saved_model.load(target)


def ask(model, signature="serving_default", **inputs):
    """Returns a signature's answers as NumPy arrays."""
    inputs = {name: tf.constant(value, tf.string) for name, value in inputs.items()}
    return {name: value.numpy() for name, value in model.signatures[signature](**inputs).items()}


def padded(rows) -> list[list[str]]:
    """Pads rows of texts with empty texts to the length of the longest row."""
    most = max(map(len, rows))
    return [[*row, *[""] * (most - len(row))] for row in rows]
