"""Loads weights from checkpoints of any supported format, and refuses checkpoints that do not fit the model.

A run's folder contains TensorFlow 2 checkpoints of `model`, `optimizer` and `global_step`, and the model's
`bert_config.json`. `checkpoint_formats` reads and writes this format and the formats of google-research/bert,
tf-models-official and Hugging Face.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.checkpoint_formats import (
    hugging_face,
    keras_hub,
    model_config,
    names,
    native,
    pair,
    saved_models,
    tf1,
    tf_models,
)
from bert_tf.checkpoint_formats.contents import OpenCheckpoint, with_trained_pooler
from bert_tf.checkpoint_formats.tensor_bundle import TensorBundle
from bert_tf.config import BertConfig
from bert_tf.core import hub
from bert_tf.core.errors import InputError, unreadable
from bert_tf.encoder import BertEncoder
from bert_tf.encoder_pair import EncoderPair, make_encoder
from bert_tf.runs import checkpoint_folder, location
from bert_tf.text import tokenizer_files

__all__ = ["initialize", "load_encoder", "open_checkpoint", "variables_by_path"]

CONFIG_NAME = model_config.ORIGINAL_NAME
VOCABULARY_NAME = tokenizer_files.VOCABULARY


def open_checkpoint(path: str, config_file: str = "") -> OpenCheckpoint:
    """Opens a checkpoint without reading its tensors, and detects its format.

    Args:
      path: a folder, a prefix, a file of the checkpoint, or `hf://owner/model`. A run's folder means the checkpoint
        with the best dev score if the run was evaluated during training, else the newest checkpoint. Two paths,
        separated by a comma, mean a pair of encoders; see `pair.join`.
      config_file: the model's configuration; "" for the file in the checkpoint's folder.

    Raises:
      InputError: there is no checkpoint; or the checkpoint is a pickle, is damaged, or has an unknown format or
        architecture.
    """
    with unreadable(os.fspath(path)):
        return _open(os.fspath(path), os.fspath(config_file))


def _open(path: str, config_file: str) -> OpenCheckpoint:
    if pair.SEPARATOR in path:
        paths = path.split(pair.SEPARATOR)
        files = [*(config_file.split(pair.SEPARATOR) if pair.SEPARATOR in config_file else ()), *[""] * len(paths)]
        joined = pair.join({each: open_checkpoint(each, file) for each, file in zip(paths, files, strict=False)})
        return dataclasses.replace(joined, config=read_config(config_file)) if config_file else joined
    source = location.locate(hub.download(path) if path.startswith(hub.SCHEME) else path)
    saved_model = saved_models.folder_of(source.path)
    folder = _folder_of_saved_model(saved_model) if saved_model else source.folder
    first = model_config.HUGGING_FACE_NAME if source.is_foreign_file else model_config.ORIGINAL_NAME
    config_path = config_file or model_config.find_file(folder, first)
    config, entries = None, {}
    if config_file or tf.io.gfile.exists(config_path):
        config, entries = model_config.read(config_path)
    files = {"config": config, "config_file": config_path, "vocab_file": tokenizer_files.find_vocabulary(folder)}
    if source.path.endswith(keras_hub.SUFFIX):
        return keras_hub.read(source.path, **files)
    if source.is_foreign_file:
        if config and config.directionality == "ltr":
            logging.warning(
                "%s: the checkpoint's pooler reads [CLS], but bert_tf's left-to-right models pool the last token",
                source.path,
            )
        return hugging_face.read(source.path, entries, **files)
    if saved_model:
        contents = saved_models.read(source.path, **files)
        return dataclasses.replace(contents, tensors=hugging_face.with_taggers_head(contents.tensors, entries))
    bundle = TensorBundle(source.path)
    readers = (native.read, tf_models.read) if bundle.has_objects else (tf1.read,)
    for read in readers:
        if contents := read(bundle, **files):
            return contents
    raise InputError(
        f"{source.path}: holds no encoder of bert_tf, google-research/bert or tf-models-official "
        f"(the first tensors are {', '.join(sorted(bundle.shapes)[:3])}); give a BERT checkpoint"
    )


def _folder_of_saved_model(folder: str) -> str:
    """Returns the folder with the configuration and the tokenizer of a SavedModel.

    transformers writes a SavedModel as `saved_model/1` into the folder of the other files.
    """
    parent = os.path.dirname(os.path.abspath(folder)) if "://" not in folder else os.path.dirname(folder)
    above = os.path.dirname(parent)
    is_inside = os.path.basename(parent) == "saved_model" and tf.io.gfile.exists(
        os.path.join(above, model_config.HUGGING_FACE_NAME)
    )
    return above if is_inside else folder


def load_encoder(path: str, config_file: str = "") -> BertEncoder | EncoderPair:
    """Builds the encoder of a checkpoint, and loads the encoder's weights.

    Args:
      path: see `open_checkpoint`.
      config_file: the model's configuration; "" for the file in the checkpoint's folder.

    Raises:
      InputError: the configuration is missing or does not fit the checkpoint's tensors; or see `open_checkpoint`.
    """
    contents = open_checkpoint(path, config_file)
    config = contents.require_config()
    fresh = contents.check(config, names.encoder_shapes(config))
    values = contents.read(path for path in names.encoder_shapes(config) if path in contents.tensors)
    encoder = make_encoder(config)
    for name, variable in variables_by_path(encoder).items():
        if f"encoder/{name}" in values:
            variable.assign(values[f"encoder/{name}"])
    if fresh:
        logging.warning(
            "%s has no pooler, so the encoder's pooler is random; train the pooler before use", contents.source
        )
    return encoder


def initialize(
    model: tf.Module,
    path: str,
    reinitialize_head: bool = False,
    adapt: Callable[[OpenCheckpoint], OpenCheckpoint] | None = None,
    transfer_layers: int | None = None,
    new_tokens: Sequence[int] = (),
) -> str:
    """Initializes a model's encoder from a checkpoint; also initializes each head that the checkpoint contains.

    Log lines report the loaded tensors, the variables that keep their initial values, and the unused tensors.

    Args:
      model: a model with an `encoder`.
      path: see `open_checkpoint`.
      reinitialize_head: whether to ignore the checkpoint's fine-tuned head.
      adapt: function that adapts the checkpoint's head to the task; see `initial.adapted`. None to change nothing.
      transfer_layers: number of the lowest layers to initialize, in addition to the embeddings. The other layers, the
        pooler and the heads keep their initial values. None, or the number of all layers, initializes everything. The
        checkpoint may have more layers than the model, except if the value is None.
      new_tokens: ids of the tokens whose embeddings keep their initial values.

    Returns:
      The checkpoint's prefix or file.

    Raises:
      InputError: see `open_checkpoint`; or a tensor of the checkpoint is missing, unexpected, or of another shape.
    """
    contents = with_trained_pooler(open_checkpoint(path))
    if transfer_layers is not None:
        contents = contents.with_lowest_layers(model.config.num_hidden_layers)
    variables = variables_by_path(model)
    contents = contents.without_task_heads() if reinitialize_head else contents.with_own_heads(variables)
    contents = adapt(contents) if adapt else contents
    contents.check(model.config, {name: tuple(v.shape) for name, v in variables.items()})
    is_whole = transfer_layers in (None, model.config.num_hidden_layers)
    taken = [name for name in variables if is_whole or names.is_in_lowest_layers(name, transfer_layers)]
    # Read everything before the first assignment, so that a damaged file leaves the model unchanged.
    values = contents.read(name for name in taken if name in contents.tensors)
    if new_tokens:
        values[names.WORDS][list(new_tokens)] = variables[names.WORDS].numpy()[list(new_tokens)]
    for name, value in values.items():
        variables[name].assign(value)
    contents.report(values, variables.keys() - values.keys())
    return contents.source


def check_initial(
    path: str,
    config: BertConfig,
    with_heads: bool = False,
    head_shapes: Mapping[str, tuple[int, ...]] = {},
    transfer_layers: int | None = None,
) -> OpenCheckpoint:
    """Checks, before any long work, that a checkpoint can initialize a model.

    Args:
      path: see `open_checkpoint`.
      config: the model's configuration.
      with_heads: whether the model has the pre-training heads.
      head_shapes: shapes of the task head's variables by path. A task head in the checkpoint must have these shapes.
      transfer_layers: see `initialize`.

    Returns:
      The open checkpoint.
    """
    contents = open_checkpoint(path)
    if transfer_layers is not None:
        contents = contents.with_lowest_layers(config.num_hidden_layers)
    if with_heads:
        contents.check_pretrained(config)
        return contents
    if head_shapes and contents.has_bilstm_unlike(head_shapes):
        logging.warning(
            "%s: the checkpoint's head has a BiLSTM, which the new model lacks; only the encoder is loaded, and the "
            "new head is random; --bilstm_head loads the head too", contents.source,
        )  # fmt: skip
    with_head = contents.with_own_heads(head_shapes) if head_shapes else contents
    with_head.check(config, {**names.encoder_shapes(config), **head_shapes})
    return contents


def model_files(settings, *flags: str) -> dict[str, str]:
    """Finds a model's files through the flags, else in the run's folder, else in the folder of `init_checkpoint`.

    Args:
      settings: a dataclass with `do_train`, `output_dir`, `init_checkpoint` and the flags.
      *flags: the names of the files' flags, "bert_config_file" or "vocab_file"; the values of the flags may be empty.

    Returns:
      The path of the file for each flag.
    """
    # A run's folder contains the run's own files. But if the folder has no checkpoint, the files come from a failed
    # start, and training does not use them.
    is_own = not settings.do_train or checkpoint_folder.prefixes(settings.output_dir)
    folder, config = settings.output_dir, os.path.join(settings.output_dir, CONFIG_NAME)
    own = {"bert_config_file": config if tf.io.gfile.exists(config) else ""}
    own["vocab_file"] = tokenizer_files.find_vocabulary(folder)
    paths = {flag: getattr(settings, flag) or (own[flag] if is_own else "") for flag in flags}
    missing = [flag for flag in flags if not paths[flag]]
    if missing:
        if not settings.init_checkpoint:
            _refuse_missing(settings, missing)
        contents = open_checkpoint(settings.init_checkpoint)
        contents.require_config()
        files = {"bert_config_file": contents.config_file, "vocab_file": contents.vocab_file}
        for flag in missing:
            if not files[flag]:
                raise InputError(
                    f"--{flag} is missing, and the folder of {contents.source} has no {VOCABULARY_NAME}; give one"
                )
            paths[flag] = files[flag]
    for flag in (flag for flag in flags if not getattr(settings, flag)):
        logging.info(
            "--%s=%s, from the folder of %s", flag, paths[flag], "--init_checkpoint" if flag in missing else "the run"
        )
    return paths


def _refuse_missing(settings, missing: Sequence[str]) -> None:
    if not settings.do_train:
        checkpoint_folder.check_there(settings.output_dir)
    if len(missing) > 1:
        raise InputError(
            f"no model is given; give --init_checkpoint=FOLDER, the folder of a pre-trained model with its "
            f"configuration and vocabulary, or, for random weights, {' and '.join(f'--{flag}' for flag in missing)}"
        )
    raise InputError(f"--{missing[0]} is missing; give it, or an --init_checkpoint whose folder has the file")


def read_config(path: str) -> BertConfig:
    """Reads a model's configuration file of any format."""
    return model_config.read(path)[0]


def variables_by_path(root: tf.Module) -> dict[str, tf.Variable]:
    """Maps the paths of an object's variables to the variables; the paths are the same as in checkpoints."""
    variables: dict[str, tf.Variable] = {}
    view = tf.train.TrackableView(root)

    def walk(node, path):
        for name, child in view.children(node).items():
            child_path = f"{path}/{name}" if path else name
            if isinstance(child, tf.Variable) or hasattr(child, "assign"):
                variables[child_path] = child
            else:
                walk(child, child_path)

    walk(root, "")
    return variables


def digest_of_weights(variables: Mapping[str, tf.Variable]) -> str:
    """Returns a hash of weights by path."""
    digest = hashlib.sha256()
    for name, variable in sorted(variables.items()):
        digest.update(name.encode() + tf.convert_to_tensor(variable).numpy().tobytes())
    return digest.hexdigest()
