"""From a run's folder to a SavedModel that TF Serving takes as it is."""

import dataclasses
import os
import tempfile

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoints, command_line
from bert_tf.checkpoint_formats import latest
from bert_tf.config import BertConfig
from bert_tf.finetuning import description, sweep_results
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.model import FineTunedBert, head_maker
from bert_tf.runs import chosen_checkpoint, run_folder
from bert_tf.tokenization import BertTokenizer
from export.settings import ExportSettings
from export.signatures import KINDS, ServedModel
from tfrecords import writer
from tfrecords.errors import InputError

LABELS_NAME = "labels.txt"
# A SavedModel's folder for additional files; TF Serving ignores files there that it does not know.
SETTINGS_NAME = os.path.join("assets.extra", "export.json")


def export_saved_model(settings: ExportSettings) -> None:
    """Exports the best checkpoint of a fine-tuning run if it was evaluated during training, else the last.

    The folder appears under its name only when it is complete. `assets.extra/export.json` in it keeps the settings.

    Raises:
      InputError: the folder holds no fine-tuning run and no finished sweep, or another task's; or `export_dir` is not
        empty.
    """
    source = sweep_results.best_folder(settings.checkpoint_dir, settings.allow_unfinished)
    settings = dataclasses.replace(settings, checkpoint_dir=source)
    target = settings.export_dir.rstrip("/")
    writer.check_new_folder(target, "export_dir")
    described = description.read(source)
    served_class = _served_class(settings, described)
    checkpoint = _checkpoint(settings)
    config_file, vocab_file = (
        os.path.join(source, name) for name in (checkpoints.CONFIG_NAME, checkpoints.VOCABULARY_NAME)
    )
    # Served in float32, whatever the model was trained in.
    keras.mixed_precision.set_global_policy("float32")
    config = BertConfig.from_json_file(config_file)
    tokenizer = BertTokenizer(vocab_file, described.do_lower_case)
    _check_files(source, described, config, tokenizer)
    described = served_class.completed(described, source, latest.step_of(checkpoint))
    model = FineTunedBert(config, head_maker(served_class.head(described), described.bilstm_head))
    restored = tf.train.Checkpoint(model=model).restore(checkpoint)
    restored.assert_existing_objects_matched().expect_partial()
    with tempfile.TemporaryDirectory() as folder:
        labels_file = os.path.join(folder, LABELS_NAME)
        with open(labels_file, "w", encoding="utf-8") as file:
            file.writelines(f"{label}\n" for label in described.labels)
        assets = {"config": config_file, "vocabulary": vocab_file, "labels": labels_file}
        served = served_class(model, tokenizer, described, assets)
        with writer.atomic_folder(target) as temporary:
            tf.saved_model.save(served, temporary, signatures={"serving_default": served.serving_default()})
            writer.write_text(os.path.join(temporary, SETTINGS_NAME), command_line.to_json(settings))
    logging.info("exported %s to %s", checkpoint, target)


def _served_class(settings: ExportSettings, described: TaskDescription) -> type[ServedModel]:
    source = settings.checkpoint_dir
    if described.kind not in KINDS:
        raise InputError(
            f"{os.path.join(source, description.NAME)}: kind {described.kind!r} cannot be exported; known kinds are "
            f"{', '.join(KINDS)}"
        )
    if settings.task_name.lower() not in ("", described.kind, described.task_name.lower()):
        raise InputError(
            f"--task_name={settings.task_name}: {source} was trained on {described.task_name}; "
            f"give --task_name={described.task_name}, leave it out, or give another --checkpoint_dir"
        )
    return KINDS[described.kind]


def _checkpoint(settings: ExportSettings) -> str:
    """Returns the prefix of the checkpoint to export; a folder without `run.json` was put together by hand."""
    source = settings.checkpoint_dir
    latest.check_there(source)
    found = latest.find(source)
    if tf.io.gfile.exists(os.path.join(source, run_folder.NAME)):
        run_folder.check_finished(source, found.step, settings.allow_unfinished)
    return chosen_checkpoint.choose(source, found, settings.use_checkpoint).prefix


def _check_files(checkpoint_dir: str, described: TaskDescription, config: BertConfig, tokenizer: BertTokenizer) -> None:
    """Refuses files that differ from what the run was trained with, where its `run.json` is there to tell."""
    if not tf.io.gfile.exists(os.path.join(checkpoint_dir, run_folder.NAME)):
        return
    files = {"vocab_sha256": checkpoints.VOCABULARY_NAME, **dict.fromkeys(vars(config), checkpoints.CONFIG_NAME)}
    phase = run_folder.read_phases(checkpoint_dir)[-1]
    trained = phase.model
    length = phase.data.get("max_seq_length", described.max_seq_length)
    if described.max_seq_length != length:
        raise InputError(
            f"{os.path.join(checkpoint_dir, description.NAME)}: is not the run's own (max_seq_length was {length} in "
            f"training, is {described.max_seq_length}); copy the run's folder again"
        )
    for fact, value in description.model_facts(described, config, tokenizer.vocabulary).items():
        if trained.get(fact, value) != value:
            raise InputError(
                f"{os.path.join(checkpoint_dir, files.get(fact, description.NAME))}: is not the run's own ({fact} was "
                f"{trained[fact]!r} in training, is {value!r}); copy the run's folder again"
            )
