"""Finds a checkpoint's files from the path that a user gives."""

import dataclasses
import glob
import os
import re
from collections.abc import Iterable

import tensorflow as tf

from bert_tf.checkpoint_formats import best, hugging_face, latest
from bert_tf.checkpoint_formats.tensor_bundle import STATE_NAME
from bert_tf.checkpoint_formats.tf1 import PREFIX_NAME
from tfrecords.errors import InputError

_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
# How files of torch.save begin: a zip archive, or a bare pickle.
_PICKLED = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_PICKLES = (".bin", ".pt", ".pth", ".pkl")
# The part number in the name of a split checkpoint.
_PICKLED_PART = re.compile(r"-\d{5}(-of-\d{5})(?=\.\w+$)")
_OTHERS = (".h5", ".keras", ".msgpack", ".onnx", ".npz")


@dataclasses.dataclass(frozen=True)
class Location:
    """A checkpoint's files.

    Attributes:
      path: prefix of a TensorFlow checkpoint, or the safetensors file or index.
      is_safetensors: whether the checkpoint is stored as safetensors.
    """

    path: str
    is_safetensors: bool

    @property
    def folder(self) -> str:
        """The folder that holds the files."""
        return os.path.dirname(self.path) or "."


def locate(path: str) -> Location:
    """Finds a checkpoint.

    Args:
      path: a folder, a prefix, or any of a checkpoint's files. The folder of a run means its best checkpoint on the
        dev data if the run was evaluated during training, else its newest intact one.

    Raises:
      InputError: there is no checkpoint, there are several, a run's best one is missing or damaged, or the file
        is a pickle.
    """
    if tf.io.gfile.isdir(path):
        return _in_folder(path)
    if path.endswith((".safetensors", hugging_face.INDEX_SUFFIX)):
        if not tf.io.gfile.exists(path):
            raise InputError(f"{path}: no such checkpoint; check the path")
        return Location(path, True)
    prefix = _PART.sub("", path)
    if tf.io.gfile.exists(prefix + ".index"):
        return Location(prefix, False)
    if tf.io.gfile.exists(path):
        _refuse_pickle(path)
        if os.path.basename(path) in (STATE_NAME, "bert_config.json", "config.json", "vocab.txt"):
            return _in_folder(os.path.dirname(path) or os.getcwd())
        if not path.endswith(_OTHERS) and _is_older_format(path):
            return Location(path, False)
        raise InputError(f"{path}: is neither a TensorFlow checkpoint nor safetensors; give one of these")
    raise InputError(
        f"{path}: no such checkpoint; give its prefix (without .index), its folder, or hf://owner/model for a model of "
        "the Hugging Face Hub"
    )


def _in_folder(folder: str) -> Location:
    names = sorted(tf.io.gfile.listdir(folder))
    for chosen in (
        [name for name in names if name.endswith(hugging_face.INDEX_SUFFIX)],
        [name for name in names if name == hugging_face.FILE_NAME],
        [name for name in names if name.endswith(".safetensors")],
    ):
        if len(chosen) == 1:
            return Location(os.path.join(folder, chosen[0]), True)
    newest = latest.find(folder)
    if newest.prefix:
        return Location(best.find(folder, newest, f"its own path, {newest.prefix}").prefix, False)
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    if PREFIX_NAME in prefixes:
        prefixes = [PREFIX_NAME]
    if len(prefixes) == 1:
        return Location(os.path.join(folder, prefixes[0]), False)
    if prefixes:
        raise InputError(f"{folder}: holds {len(prefixes)} checkpoints, {', '.join(prefixes[:3])}; give one of them")
    pickle = pickled_weights(names)
    if pickle:
        _refuse_pickle(os.path.join(folder, pickle))
    raise InputError(
        f"{folder}: holds no checkpoint; give a folder where training has saved one, "
        "or one with a .index file or model.safetensors"
    )


def pickled_weights(names: Iterable[str]) -> str | None:
    """Returns the pickle that holds the weights, judged by its name; None if there is no pickle."""
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    # the optimizer's state and the training arguments are pickles too
    return min(pickles, key=lambda name: not name.startswith(("pytorch_model", "model")), default=None)


def pickle_command(path: str) -> str:
    """Returns the command that converts a pickle to safetensors in the same folder without running its code.

    Args:
      path: the pickle, or one part of a split checkpoint.
    """
    target = os.path.join(os.path.dirname(path), hugging_face.FILE_NAME)
    parts = f'["{path}"]'
    if _PICKLED_PART.search(path):
        folder, name = os.path.split(path)
        pattern = os.path.join(glob.escape(folder), _PICKLED_PART.sub(r"-?????\1", name))
        parts = f'glob.glob("{pattern}")'
    return (
        "python -c 'import glob, torch, safetensors.torch as s; s.save_file({k: v.clone() "
        f"for file in {parts} for k, v in "
        f'torch.load(file, weights_only=True, map_location="cpu").items()}}, "{target}", {{"format": "pt"}})\''
    )


def _refuse_pickle(path: str) -> None:
    """Raises an error for a pickle: opening one would run any code that it contains."""
    with tf.io.gfile.GFile(path, "rb") as file:
        is_pickle = file.read(4).startswith(_PICKLED)
    if is_pickle or path.endswith(_PICKLES):
        raise InputError(
            f"{path}: is a pickle, which can run any code and is not opened; convert it to {hugging_face.FILE_NAME}, "
            f"which runs none: {pickle_command(path)}"
        )


def _is_older_format(path: str) -> bool:
    try:
        tf.train.load_checkpoint(path)
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError):
        return False
    return True
