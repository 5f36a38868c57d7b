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
from bert_tf.runs import run_folder
from bert_tf.text.data_vocabulary import tokens_sha256
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
    _check_tokenizer(source, tokenizer)
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


def _check_tokenizer(checkpoint_dir: str, tokenizer: BertTokenizer) -> None:
    """Refuses a vocabulary or a casing that the run was not trained with, where its `run.json` is there to tell."""
    if not tf.io.gfile.exists(os.path.join(checkpoint_dir, run_folder.NAME)):
        return
    found = {"vocab_sha256": tokens_sha256(tokenizer.vocabulary), "do_lower_case": tokenizer.do_lower_case}
    files = {"vocab_sha256": checkpoints.VOCABULARY_NAME, "do_lower_case": TASK_NAME}
    trained = run_folder.read_phases(checkpoint_dir)[-1].model
    for fact, value in found.items():
        if trained.get(fact, value) != value:
            raise InputError(
                f"{os.path.join(checkpoint_dir, files[fact])}: is not the run's own ({fact} was {trained[fact]!r} in "
                f"training, is {value!r}); copy the run's folder again"
            )


def _read_description(checkpoint_dir: str) -> ClassifierDescription:
    path = os.path.join(checkpoint_dir, TASK_NAME)
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; give a folder that run_classifier has trained into")
    with tf.io.gfile.GFile(path) as file:
        try:
            return ClassifierDescription(**json.load(file))
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: is damaged ({error}); train again") from error
