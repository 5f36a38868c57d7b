"""Loading weights from checkpoints, and refusing those that do not fit.

A run's folder holds TensorFlow 2 checkpoints of `model`, `optimizer` and `global_step`, and the
`bert_config.json` that they were made with.
"""

import os
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from tfrecords.errors import InputError

CONFIG_NAME = "bert_config.json"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_MODEL_PREFIX = "model/"
_ENCODER_PREFIX = "encoder/"


def latest_checkpoint(path: str) -> str:
    """The checkpoint prefix that a path means: itself, or the latest of a folder.

    Raises:
      InputError: there is no checkpoint.
    """
    if tf.io.gfile.isdir(path):
        latest = tf.train.latest_checkpoint(path)
        if latest is None:
            raise InputError(f"{path}: holds no checkpoint; give a folder where training has saved one")
        return latest
    prefix = path.removesuffix(".index")
    if not tf.io.gfile.exists(prefix + ".index"):
        raise InputError(f"{path}: no such checkpoint; give its prefix (without .index) or its folder")
    return prefix


def load_encoder(path: str) -> BertEncoder:
    """Builds the encoder that a checkpoint holds and loads its weights.

    Args:
      path: folder of a run, or prefix of one of its checkpoints, with `bert_config.json` beside it.

    Raises:
      InputError: no checkpoint, no configuration, or they do not fit each other.
    """
    prefix = latest_checkpoint(path)
    config_file = os.path.join(os.path.dirname(prefix), CONFIG_NAME)
    encoder = BertEncoder(BertConfig.from_json_file(config_file))
    saved = _read_shapes(prefix)
    _assign(encoder, _ENCODER_PREFIX, saved, prefix, required="")
    return encoder


def initialize(model: tf.Module, path: str) -> None:
    """Starts a model from a checkpoint: all of the encoder, and of the heads what is there.

    What was loaded, what starts afresh and what was left over is logged.

    Args:
      model: a model with an `encoder`.
      path: folder of a run, or prefix of a checkpoint.

    Raises:
      InputError: no checkpoint, one of another project, a tensor of the encoder is missing, or one
        has another shape.
    """
    prefix = latest_checkpoint(path)
    saved = _read_shapes(prefix)
    _check_same_architecture(model.config, prefix, saved, variables_by_path(model))
    fresh, left_over = _assign(model, "", saved, prefix, required=_ENCODER_PREFIX)
    loaded = len(saved) - len(left_over)
    logging.info("loaded %d tensors of the model from %s", loaded, prefix)
    if fresh:
        logging.info("start afresh: %s", ", ".join(sorted(fresh)))
    if left_over:
        logging.info("left over in the checkpoint: %s", ", ".join(sorted(left_over)))


def _check_same_architecture(config: BertConfig, prefix: str, saved: Iterable[str], variables: Iterable[str]) -> None:
    """Refuses what shapes do not show: more layers in the file, other heads, another activation."""
    extra = sorted(name for name in saved if name.startswith(_ENCODER_PREFIX) and name not in variables)
    if extra:
        raise InputError(
            f"{prefix}: the tensor {extra[0]} has no place in the model; the checkpoint is of another architecture; "
            "give the bert_config.json it was made with"
        )
    config_file = os.path.join(os.path.dirname(prefix), CONFIG_NAME)
    if not tf.io.gfile.exists(config_file):
        return
    made_with = BertConfig.from_json_file(config_file)
    for name in ("num_attention_heads", "hidden_act", "directionality"):
        if getattr(made_with, name) != getattr(config, name):
            raise InputError(
                f"{prefix}: was made with {name}={getattr(made_with, name)}, the model has {getattr(config, name)}; "
                f"give {config_file}"
            )


def _read_shapes(prefix: str) -> dict[str, list[int]]:
    """Shapes of the model's tensors in a checkpoint, by their path in the model."""
    try:
        shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise InputError(f"{prefix}: cannot be read as a checkpoint ({error}); copy it again") from error
    saved = {
        key[len(_MODEL_PREFIX) : -len(_SUFFIX)]: shape
        for key, shape in shapes.items()
        if key.startswith(_MODEL_PREFIX) and key.endswith(_SUFFIX) and "/.OPTIMIZER_SLOT/" not in key
    }
    if not any(key.startswith(_ENCODER_PREFIX) for key in saved):
        raise InputError(
            f"{prefix}: holds no encoder of bert_tf (its first tensors: {', '.join(sorted(shapes)[:3])}); "
            "checkpoints of other projects cannot be read yet"
        )
    return saved


def _assign(
    model: tf.Module, prefix_in_file: str, saved: dict[str, list[int]], path: str, required: str
) -> tuple[list[str], list[str]]:
    """Assigns saved tensors to the variables of the same path; all shapes are checked before the first."""
    variables = {prefix_in_file + name: v for name, v in variables_by_path(model).items()}
    fresh = [name for name in variables if name not in saved]
    for name in fresh:
        if name.startswith(required or prefix_in_file):
            raise InputError(
                f"{path}: the tensor {name} is missing; the checkpoint is of another architecture "
                "or incomplete; give the bert_config.json it was made with"
            )
    for name, variable in variables.items():
        if name in saved and saved[name] != variable.shape.as_list():
            raise InputError(
                f"{path}: the tensor {name} has shape {saved[name]}, the model needs "
                f"{variable.shape.as_list()}; give the bert_config.json and the task it was made with"
            )
    # all is read before the first is assigned, so that a damaged file leaves the model as it was
    values = _read_tensors(path, [name for name in variables if name in saved])
    for name, value in values.items():
        variables[name].assign(value)
    return fresh, [name for name in saved if name not in variables]


def _read_tensors(path: str, names: list[str]) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(path)
    try:
        return {name: reader.get_tensor(_MODEL_PREFIX + name + _SUFFIX) for name in names}
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        raise InputError(f"{path}: its data cannot be read ({error}); copy it again") from error


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
