"""From a path as people give it to the files of a checkpoint."""

import dataclasses
import glob
import os
import re
from collections.abc import Iterable

import tensorflow as tf

from bert_tf.checkpoint_formats import hugging_face, latest
from bert_tf.checkpoint_formats.tensor_bundle import STATE_NAME
from bert_tf.checkpoint_formats.tf1 import PREFIX_NAME
from tfrecords.errors import InputError

_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
# what torch.save writes: a zip archive, or a bare pickle
_PICKLED = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_PICKLES = (".bin", ".pt", ".pth", ".pkl")
# one of several, and how many there are
_PICKLED_PART = re.compile(r"-\d{5}(-of-\d{5})(?=\.\w+$)")
_OTHERS = (".h5", ".keras", ".msgpack", ".onnx", ".npz")


@dataclasses.dataclass(frozen=True)
class Location:
    """Where a checkpoint is.

    Attributes:
      path: prefix of TensorFlow's files, or the safetensors file or index.
      is_safetensors: which of the two.
    """

    path: str
    is_safetensors: bool

    @property
    def folder(self) -> str:
        """The folder of its files."""
        return os.path.dirname(self.path) or "."


def locate(path: str) -> Location:
    """Finds a checkpoint.

    Args:
      path: a folder, a prefix, or any of a checkpoint's files.

    Raises:
      InputError: there is no checkpoint, there are several, or it is a pickle.
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
            return _in_folder(os.path.dirname(path) or ".")
        if not path.endswith(_OTHERS) and _is_older_format(path):
            return Location(path, False)
        raise InputError(f"{path}: is no checkpoint of TensorFlow and no safetensors; give one of these")
    raise InputError(f"{path}: no such checkpoint; give its prefix (without .index) or its folder")


def latest_checkpoint(path: str) -> str:
    """The prefix of TensorFlow's files that a path means: itself, or the newest whole one of a folder.

    Raises:
      InputError: there is no checkpoint, or not one of TensorFlow.
    """
    found = locate(path)
    if found.is_safetensors:
        raise InputError(
            f"{path}: holds safetensors, no checkpoint of a run; give a folder where training has saved one"
        )
    return found.path


def _in_folder(folder: str) -> Location:
    names = sorted(tf.io.gfile.listdir(folder))
    for chosen in (
        [name for name in names if name.endswith(hugging_face.INDEX_SUFFIX)],
        [name for name in names if name == hugging_face.FILE_NAME],
        [name for name in names if name.endswith(".safetensors")],
    ):
        if len(chosen) == 1:
            return Location(os.path.join(folder, chosen[0]), True)
    newest = latest.find(folder).prefix
    if newest:
        return Location(newest, False)
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
    """The pickle among a folder's files that holds the weights, as far as names tell; None for no pickle."""
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    # beside them lie the optimizer's state and the arguments of the training, which are pickles too
    return min(pickles, key=lambda name: not name.startswith(("pytorch_model", "model")), default=None)


def pickle_command(path: str) -> str:
    """The command that makes a pickle, with all its parts, safetensors beside it, and runs none of its code.

    Args:
      path: the pickle, or one of its parts.
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
    """Pickles run any code that their maker put into them, so none is ever opened."""
    with tf.io.gfile.GFile(path, "rb") as file:
        is_pickle = file.read(4).startswith(_PICKLED)
    if is_pickle or path.endswith(_PICKLES):
        raise InputError(
            f"{path}: is a pickle, which can run any code and is not opened; make it {hugging_face.FILE_NAME} beside "
            f"it, without running any: {pickle_command(path)}"
        )


def _is_older_format(path: str) -> bool:
    try:
        tf.train.load_checkpoint(path)
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError):
        return False
    return True
