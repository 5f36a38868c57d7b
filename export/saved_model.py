"""From a run's folder to a SavedModel that TF Serving takes as it is."""

import json
import os
import tempfile

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoints, command_line
from bert_tf.config import BertConfig
from bert_tf.finetuning.classifier import BertClassifier
from bert_tf.finetuning.classifier_run import TASK_NAME
from bert_tf.tokenization import BertTokenizer
from export.settings import ExportSettings
from export.signatures import ClassifierDescription, ServedClassifier
from tfrecords import writer
from tfrecords.errors import InputError

LABELS_NAME = "labels.txt"
# A SavedModel's folder for additional files; TF Serving ignores files there that it does not know.
SETTINGS_NAME = os.path.join("assets.extra", "export.json")


def export_saved_model(settings: ExportSettings) -> None:
    """Exports the latest checkpoint of a classifier run.

    The folder appears under its name only when it is whole. `assets.extra/export.json` in it keeps the settings.

    Raises:
      InputError: the folder holds no classifier run or another task's, or `export_dir` holds something.
    """
    source, target = settings.checkpoint_dir, settings.export_dir.rstrip("/")
    writer.check_new_folder(target, "export_dir")
    description = _read_description(source)
    if settings.task.lower() not in ("classifier", description.task_name.lower()):
        raise InputError(
            f"--task={settings.task}: {source} was trained on {description.task_name}; "
            f"give --task={description.task_name}, --task=classifier, or another --checkpoint_dir"
        )
    checkpoint = checkpoints.latest_checkpoint(source)
    config_file, vocab_file = (
        os.path.join(source, name) for name in (checkpoints.CONFIG_NAME, checkpoints.VOCABULARY_NAME)
    )
    # served in float32 whatever it was trained in
    keras.mixed_precision.set_global_policy("float32")
    model = BertClassifier(BertConfig.from_json_file(config_file), len(description.labels) or 1)
    restored = tf.train.Checkpoint(model=model).restore(checkpoint)
    restored.assert_existing_objects_matched().expect_partial()
    tokenizer = BertTokenizer(vocab_file, description.do_lower_case)
    with tempfile.TemporaryDirectory() as folder:
        labels_file = os.path.join(folder, LABELS_NAME)
        with open(labels_file, "w", encoding="utf-8") as file:
            file.writelines(f"{label}\n" for label in description.labels)
        assets = {"config": config_file, "vocabulary": vocab_file, "labels": labels_file}
        served = ServedClassifier(model, tokenizer, description, assets)
        with writer.atomic_folder(target) as temporary:
            tf.saved_model.save(served, temporary, signatures={"serving_default": served.serving_default()})
            writer.write_text(os.path.join(temporary, SETTINGS_NAME), command_line.to_json(settings))
    logging.info("exported %s to %s", checkpoint, target)


def _read_description(checkpoint_dir: str) -> ClassifierDescription:
    path = os.path.join(checkpoint_dir, TASK_NAME)
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; give a folder that run_classifier has trained into")
    with tf.io.gfile.GFile(path) as file:
        try:
            return ClassifierDescription(**json.load(file))
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: is damaged ({error}); train again") from error
