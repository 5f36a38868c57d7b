"""From a checkpoint to a SavedModel that TF Serving takes as it is."""

import dataclasses
import os
import tempfile

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoints, command_line
from bert_tf.runs import checkpoint_tokenizer
from export import signatures, sources, versions
from export.settings import ExportSettings
from export.sources import Source
from tfrecords import writer

LABELS_NAME = "labels.txt"
# A SavedModel's folder for additional files; TF Serving ignores files there that it does not know.
SETTINGS_NAME = os.path.join("assets.extra", "export.json")


def export_saved_model(settings: ExportSettings) -> str:
    """Exports a fine-tuning run, or a checkpoint without a task; see `sources.load`.

    The version appears under its number only when it is complete. `assets.extra/export.json` in it keeps the settings.

    Returns:
      The folder of the version: `export_dir`, or the next version in it.

    Raises:
      InputError: there is nothing to export, or `export_dir` exists or is no model's folder.
    """
    versions.check(settings.export_dir)
    # Served in float32, whatever the model was trained in.
    keras.mixed_precision.set_global_policy("float32")
    source = sources.load(settings)
    settings = dataclasses.replace(settings, checkpoint_dir=source.folder)
    with tempfile.TemporaryDirectory() as folder:
        served = source.kind(source.model, source.tokenizer, source.description, _assets(source, folder))
        with writer.temporary_folder(versions.beside(settings.export_dir)) as temporary:
            tf.saved_model.save(
                served, temporary, signatures=signatures.of(served, source.config.max_position_embeddings)
            )
            signatures.set_method(temporary, served.method)
            writer.write_text(os.path.join(temporary, SETTINGS_NAME), command_line.to_json(settings))
            target = versions.publish(temporary, settings.export_dir)
    logging.info("exported %s to %s", source.checkpoint, target)
    return target


def _assets(source: Source, folder: str) -> dict[str, str]:
    """Writes the assets into a folder; returns their paths."""
    files = {name: os.path.join(folder, name) for name in (checkpoints.CONFIG_NAME, checkpoints.VOCABULARY_NAME)}
    writer.write_text(files[checkpoints.CONFIG_NAME], source.config.to_json_string())
    checkpoint_tokenizer.copy_vocabulary(source.tokenizer.vocab_file, files[checkpoints.VOCABULARY_NAME])
    if source.description.labels:
        files[LABELS_NAME] = os.path.join(folder, LABELS_NAME)
        writer.write_text(files[LABELS_NAME], "".join(f"{label}\n" for label in source.description.labels))
    return {name.partition(".")[0]: path for name, path in files.items()}
