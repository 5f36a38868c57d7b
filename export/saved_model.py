"""Exports a checkpoint as a SavedModel that TF Serving can serve without changes.

Letters: N choices per example.
"""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import checkpoints
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description
from bert_tf.modeling.precision import policy, policy_name
from bert_tf.tasks.trained import Trained
from bert_tf.text import tokenizer_files
from export import kinds, litert, loading, model_card, signatures, sources, version_folder, warmup, weights
from export.kinds.base import ServedModel
from export.settings import ExportSettings

# `assets.extra` is a SavedModel's folder for additional files. TF Serving ignores unknown files in this folder.
SETTINGS_NAME = os.path.join("assets.extra", "export.json")
# Number of choices per example in warm-up requests of tokens, if the model accepts any number of choices.
_CHOICES = 2


def export_saved_model(settings: ExportSettings) -> str:
    """Exports a fine-tuning run, or a checkpoint without a task; see `sources.load`. The version appears under its
    number only when it is complete, can be loaded, and has answered its warm-up requests. The version's file
    `assets.extra/export.json` contains the settings. Returns the folder of the version: `export_dir`, or the next
    version in `export_dir`."""
    version_folder.check(settings.export_dir, settings.format == "litert")
    with policy(policy_name(settings.dtype)), sources.load(settings) as source:
        # A model of another project was converted into a temporary folder, which means nothing to the user.
        is_own = source.checkpoint.startswith(settings.checkpoint_dir)
        name = source.checkpoint if is_own else settings.checkpoint_dir
        logging.info("exporting %s, a model of %s", name, source.description.task_name)
        target = _write(source, settings)
    logging.info("exported %s to %s", name, target)
    return target


def _names(settings: ExportSettings, source: Trained) -> dict[str, str]:
    """Returns names instead of the settings' paths, because an export may be published."""
    path = settings.checkpoint_dir
    best = source.folder if source.folder.startswith(path) else path  # the best trial of a sweep
    name = path if "://" in path else os.path.relpath(best, os.path.join(path, ".."))
    return {"checkpoint_dir": name, "export_dir": version_folder.model_name(settings.export_dir)}


def _write(source: Trained, settings: ExportSettings) -> str:
    with (
        tempfile.TemporaryDirectory() as folder,
        storage.temporary_folder(version_folder.beside(settings.export_dir)) as temporary,
    ):
        with _named(settings.export_dir, temporary):
            _write_files(source, settings, folder, temporary)
        return version_folder.publish(temporary, settings.export_dir)


def _write_files(source: Trained, settings: ExportSettings, assets_folder: str, folder: str) -> None:
    recorded = dataclasses.asdict(settings) | _names(settings, source)
    assets = _assets(source, recorded, assets_folder)
    kind = kinds.kind_of(source.description)
    kind.drop_unused(source.model, source.description)
    weights.prepare(source.model, settings.dtype, halved=settings.format == "saved_model" and settings.device == "cpu")
    served = kind(source.model, source.tokenizer, source.description, assets)
    requests = _requests(served)
    if settings.format == "litert":
        rows = next(each.inputs for each in requests if each.signature == signatures.TOKENS)
        litert.write(served, folder, settings.quantize == "int8", rows)
        for path in assets.values():
            tf.io.gfile.copy(path, os.path.join(folder, os.path.basename(path)))
    else:
        functions = signatures.signatures_of(served, source.config.max_position_embeddings)
        served.__call__ = signatures.callable_of(functions[warmup.DEFAULT_SIGNATURE])  # the layer of hub.KerasLayer
        tf.saved_model.save(served, folder, signatures=functions)
        signatures.set_method(folder, served.method)
        warmup.write(folder, version_folder.model_name(settings.export_dir), requests)
        loading.check(folder)
    storage.write_json(os.path.join(folder, SETTINGS_NAME), recorded)


def _requests(served: ServedModel) -> list[warmup.Request]:
    """Returns the warm-up requests: real inputs for each signature, and a single row for the default signature."""
    rows = [{name: _in_utf8(value) for name, value in row.items()} for row in served.samples()]
    method = served.method.rpartition("/")[2]
    first_texts = np.array([next(iter(row.values()))[0] for row in rows], object)
    examples = np.array([_example(row).SerializeToString() for row in rows], object)
    return [
        warmup.Request("predict", warmup.DEFAULT_SIGNATURE, _columns(rows[:1], served)),
        warmup.Request("predict", warmup.DEFAULT_SIGNATURE, _columns(rows, served)),
        warmup.Request("predict", signatures.TOKENS, _tokens(served, rows)),
        warmup.Request(method, signatures.EXAMPLES, {warmup.EXAMPLES_INPUT: examples}),
        *(
            warmup.Request("predict", name, dict.fromkeys(inputs, first_texts))
            for name, (_, inputs) in served.more_signatures().items()
        ),
    ]


def _in_utf8(value: Any) -> list[bytes]:
    """Returns the texts of one input in one row, in UTF-8. If the input has one text per row, the list has one text."""
    return [text.encode("utf-8", errors="ignore") for text in ([value] if isinstance(value, str) else value)]


def _columns(rows: Sequence[Mapping[str, list[bytes]]], served: ServedModel) -> dict[str, np.ndarray]:
    """Maps each input to a string array [B] or [B, N]; short rows are padded with empty texts."""
    columns = {}
    for name, spec in served.inputs().items():
        most = max(len(row[name]) for row in rows)
        values = np.array([row[name] + [b""] * (most - len(row[name])) for row in rows], object)
        columns[name] = values[:, 0] if spec.shape.rank == 1 else values
    return columns


def _example(row: Mapping[str, list[bytes]]) -> tf.train.Example:
    features = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=texts)) for name, texts in row.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _tokens(served: ServedModel, rows: Sequence[Mapping[str, list[bytes]]]) -> dict[str, np.ndarray]:
    """Returns inputs of the token signature, int32 [B, S] or [B, N, S], with the tokens of each row's first text."""
    packed = served.rows(served.tokenizer.encode([next(iter(row.values()))[0] for row in rows]))
    columns, shape = {name: values.numpy() for name, values in packed.items()}, served.token_spec().shape
    if shape.rank == 2:
        return columns
    return {name: np.repeat(values[:, np.newaxis], shape[1] or _CHOICES, axis=1) for name, values in columns.items()}


@contextlib.contextmanager
def _named(export_dir: str, temporary: str) -> Iterator[None]:
    """Replaces the temporary folder in error messages with the folder that the user gave."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(temporary, export_dir.rstrip("/"))) from error


def _assets(source: Trained, settings: Mapping[str, Any], folder: str) -> dict[str, str]:
    """Writes the assets into a folder; returns a map from the assets' names (without suffix) to their paths."""
    texts = {
        checkpoints.CONFIG_NAME: source.config.to_json_string(),
        model_card.NAME: model_card.text(source, settings),
    }
    if source.description.labels:
        texts[version_folder.LABELS] = "".join(f"{label}\n" for label in source.description.labels)
    for name, text in texts.items():
        storage.write_text(os.path.join(folder, name), text)
    description.write(folder, source.description)
    tokenizer_files.write(folder, source.tokenizer.rules, source.description.max_seq_length)
    paths = (os.path.join(folder, name) for name in (*texts, description.NAME, *tokenizer_files.WRITTEN))
    return {os.path.basename(path).partition(".")[0]: path for path in paths if os.path.exists(path)}
