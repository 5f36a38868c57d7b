"""Loading weights from checkpoints of any supported format, and refusing those that do not fit.

A run's own folder holds TensorFlow 2 checkpoints of `model`, `optimizer` and `global_step`, and the
`bert_config.json` that they were made with. The other formats are those of google-research/bert,
tf-models-official and Hugging Face; `checkpoint_formats` reads and writes them.
"""

import dataclasses
import os
from typing import TypeVar

import tensorflow as tf
from absl import logging

from bert_tf.checkpoint_formats import (
    hub,
    hugging_face,
    latest,
    location,
    model_config,
    names,
    native,
    tf1,
    tf_models,
)
from bert_tf.checkpoint_formats.contents import Contents, trained_pooler
from bert_tf.checkpoint_formats.location import latest_checkpoint
from bert_tf.checkpoint_formats.tensor_bundle import TensorBundle
from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from tfrecords.errors import InputError

__all__ = ["initialize", "latest_checkpoint", "load_encoder", "open_checkpoint", "variables_by_path"]

CONFIG_NAME = model_config.ORIGINAL_NAME
VOCABULARY_NAME = "vocab.txt"
_FILES = {"bert_config_file": CONFIG_NAME, "vocab_file": VOCABULARY_NAME}
_Settings = TypeVar("_Settings")


def open_checkpoint(path: str, config_file: str = "") -> Contents:
    """Opens a checkpoint of any format, told apart by what it holds; no tensor is read.

    Args:
      path: a folder, a prefix, a file of the checkpoint, or `hf://owner/model`.
      config_file: what it was made with, where no configuration lies beside it.

    Raises:
      InputError: no checkpoint, a pickle, one of another project or architecture, or a damaged one.
    """
    path = os.fspath(path)
    found = location.locate(hub.download(path) if path.startswith(hub.SCHEME) else path)
    first = model_config.HUGGING_FACE_NAME if found.is_safetensors else model_config.ORIGINAL_NAME
    beside_file = config_file or model_config.find(found.folder, first)
    config, entries = None, {}
    if config_file or tf.io.gfile.exists(beside_file):
        config, entries = model_config.read(beside_file)
    vocab_file = os.path.join(found.folder, VOCABULARY_NAME)
    beside = {
        "config": config,
        "config_file": beside_file,
        "vocab_file": vocab_file if tf.io.gfile.exists(vocab_file) else "",
    }
    if found.is_safetensors:
        if config and config.directionality == "ltr":
            logging.warning("%s: its pooler reads [CLS], ours of a left-to-right model the last piece", found.path)
        return hugging_face.read(found.path, entries, **beside)
    bundle = TensorBundle(found.path)
    readers = (native.read, tf_models.read) if bundle.has_objects else (tf1.read,)
    for read in readers:
        contents = read(bundle, **beside)
        if contents:
            return contents
    raise InputError(
        f"{found.path}: holds no encoder of bert_tf, google-research/bert or tf-models-official "
        f"(its first tensors: {', '.join(sorted(bundle.shapes)[:3])}); give a checkpoint of BERT"
    )


def load_encoder(path: str) -> BertEncoder:
    """Builds the encoder that a checkpoint holds and loads its weights.

    Args:
      path: see `open_checkpoint`; a configuration must lie beside the checkpoint.

    Raises:
      InputError: no checkpoint, no configuration, or they do not fit each other.
    """
    contents = open_checkpoint(path)
    config = contents.require_config()
    fresh = contents.check(config, names.encoder_shapes(config))
    values = contents.read(path for path in names.encoder_shapes(config) if path in contents.tensors)
    encoder = BertEncoder(config)
    for name, variable in variables_by_path(encoder).items():
        if f"encoder/{name}" in values:
            variable.assign(values[f"encoder/{name}"])
    if fresh:
        logging.warning("%s has no pooler; that of the encoder starts afresh, so train it before use", contents.source)
    return encoder


def initialize(model: tf.Module, path: str) -> None:
    """Starts a model from a checkpoint: all of the encoder, and of the heads what is there.

    What was loaded, what starts afresh and what was left over is logged.

    Args:
      model: a model with an `encoder`.
      path: see `open_checkpoint`.

    Raises:
      InputError: no checkpoint, one of another project, a tensor of the encoder is missing, or one
        has another shape.
    """
    contents = trained_pooler(open_checkpoint(path))
    variables = variables_by_path(model)
    fresh = contents.check(model.config, {name: tuple(v.shape) for name, v in variables.items()})
    # all is read before the first is assigned, so that a damaged file leaves the model as it was
    values = contents.read(name for name in variables if name in contents.tensors)
    for name, value in values.items():
        variables[name].assign(value)
    contents.report(values, fresh)


def check_initial(path: str, config: BertConfig, with_heads: bool = False) -> None:
    """Refuses a checkpoint that a model of a configuration cannot start from, before anything else is done.

    Args:
      path: see `open_checkpoint`.
      config: the model's.
      with_heads: whether the model has the heads of pre-training.

    Raises:
      InputError: see `initialize`; the shapes of a task's head are not looked at.
    """
    contents = open_checkpoint(path)
    if with_heads:
        contents.check_pretrained(config)
    else:
        contents.check(config, names.encoder_shapes(config))


def settings_with_files(settings: _Settings, *flags: str) -> _Settings:
    """Settings with the files that were left out taken from the run's folder, or from beside `init_checkpoint`.

    Args:
      settings: a dataclass with `init_checkpoint` and the flags.
      *flags: "bert_config_file", "vocab_file".

    Raises:
      InputError: a file was left out, and there is none.
    """
    # a run that is resumed or evaluated needs nothing but its folder; a start that failed leaves no checkpoint
    is_own = not settings.do_train or latest.prefixes(settings.output_dir)
    own = {flag: os.path.join(settings.output_dir, name) if is_own else "" for flag, name in _FILES.items()}
    given = {flag: getattr(settings, flag) or (own[flag] if tf.io.gfile.exists(own[flag]) else "") for flag in flags}
    missing = [flag for flag in flags if not given[flag]]
    if missing:
        if not settings.init_checkpoint:
            raise InputError(f"--{missing[0]} is missing; give it, or an --init_checkpoint that has the file beside it")
        contents = open_checkpoint(settings.init_checkpoint)
        contents.require_config()
        beside = {"bert_config_file": contents.config_file, "vocab_file": contents.vocab_file}
        for flag in missing:
            if not beside[flag]:
                raise InputError(
                    f"--{flag} is missing, and no {VOCABULARY_NAME} lies beside {contents.source}; give it"
                )
            given[flag] = beside[flag]
    for flag in (flag for flag in flags if not getattr(settings, flag)):
        logging.info(
            "--%s=%s, from beside %s", flag, given[flag], "--init_checkpoint" if flag in missing else "the run"
        )
    return dataclasses.replace(settings, **given)


def read_config(path: str) -> BertConfig:
    """Reads a `bert_config.json`, or Hugging Face's `config.json`.

    Raises:
      InputError: see `model_config.read`.
    """
    return model_config.read(path)[0]


def variables_by_path(root: tf.Module) -> dict[str, tf.Variable]:
    """Every variable below an object, under the path that a checkpoint gives it."""
    found: dict[str, tf.Variable] = {}
    view = tf.train.TrackableView(root)

    def walk(node, path):
        for name, child in view.children(node).items():
            child_path = f"{path}/{name}" if path else name
            if isinstance(child, tf.Variable) or hasattr(child, "assign"):
                found[child_path] = child
            else:
                walk(child, child_path)

    walk(root, "")
    return found
