"""Finds the files of a checkpoint from the path that a user gives."""

import dataclasses
import os
import re

import tensorflow as tf

from bert_tf.checkpoint_formats import hugging_face, hugging_face_tf, keras_hub, saved_models
from bert_tf.checkpoint_formats.tensor_bundle import STATE_NAME
from bert_tf.checkpoint_formats.tf1 import PREFIX_NAME
from bert_tf.core.errors import InputError
from bert_tf.core.hub import NO_PICKLES
from bert_tf.runs import checkpoint_folder, chosen_checkpoint

_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
# The first bytes of files from torch.save: a zip archive, or a bare pickle.
_PICKLED = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_PICKLES = (".bin", ".pt", ".pth", ".pkl")


@dataclasses.dataclass(frozen=True)
class Location:
    """A checkpoint's files."""

    # prefix of a TensorFlow checkpoint, or path of a file of Hugging Face or KerasHub: safetensors, its index, or .h5
    path: str
    is_foreign_file: bool  # whether the path is a file of Hugging Face or KerasHub, not a prefix

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path) or "."


def locate(path: str) -> Location:
    """Finds a checkpoint.
    `path`: a folder, a prefix, or any of a checkpoint's files. A run's folder means the best checkpoint on the dev
      data, or the newest intact checkpoint if the run was not evaluated during training."""
    if tf.io.gfile.isdir(path):
        return _in_folder(path)
    if path.endswith((".safetensors", hugging_face.INDEX_SUFFIX, ".h5")):
        if not tf.io.gfile.exists(path):
            raise InputError(f"{path}: no such checkpoint; check the path")
        return Location(path, True)
    prefix = _PART.sub("", path)
    if tf.io.gfile.exists(prefix + ".index"):
        return Location(prefix, False)
    if tf.io.gfile.exists(path):
        if path.endswith(".keras"):
            raise InputError(
                f"{path}: is a Keras 3 object, not a checkpoint; save the weights with the library that made it, and "
                "give that folder (docs: Coming from other libraries)"
            )
        _refuse_pickle(path)
        if os.path.basename(path) in (STATE_NAME, "bert_config.json", "config.json", "vocab.txt"):
            return _in_folder(os.path.dirname(path) or os.getcwd())
        raise InputError(f"{path}: is neither a TensorFlow checkpoint nor safetensors; give one of these")
    raise InputError(
        f"{path}: no such checkpoint; give the prefix (without .index) or the folder of a checkpoint, or "
        "hf://owner/model for a model on the Hugging Face Hub"
    )


def _in_folder(folder: str) -> Location:
    names = sorted(tf.io.gfile.listdir(folder))
    for chosen in (
        [name for name in names if name.endswith(hugging_face.INDEX_SUFFIX)],
        [name for name in names if name == hugging_face.FILE_NAME],
        [name for name in names if name.endswith(".safetensors")],
        [name for name in names if name == hugging_face_tf.FILE_NAME],
        [name for name in names if name == keras_hub.FILE_NAME],
    ):
        if len(chosen) == 1:
            return Location(os.path.join(folder, chosen[0]), True)
    if f"{hugging_face_tf.FILE_NAME}.index.json" in names:
        raise InputError(f"{folder}: has .h5 files in several parts, which are not read; {NO_PICKLES}")
    if saved_models.FILE_NAME in names:
        return Location(os.path.join(folder, "variables", "variables"), False)
    newest = checkpoint_folder.newest_intact(folder)
    if newest.prefix:
        return Location(chosen_checkpoint.best(folder, newest, f"its own path, {newest.prefix}").prefix, False)
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    if PREFIX_NAME in prefixes:
        prefixes = [PREFIX_NAME]
    if len(prefixes) == 1:
        return Location(os.path.join(folder, prefixes[0]), False)
    if prefixes:
        raise InputError(f"{folder}: holds {len(prefixes)} checkpoints, {', '.join(prefixes[:3])}; give one of them")
    if pickle := next((name for name in names if name.endswith(_PICKLES)), None):
        _refuse_pickle(os.path.join(folder, pickle))
    if "trials" in [name.rstrip("/") for name in names]:
        raise InputError(f"{folder}: is a sweep; give the folder of its best trial, which results.json shows")
    raise InputError(
        f"{folder}: holds no checkpoint; give a folder where training has saved a checkpoint, "
        "or a folder with a .index file or model.safetensors"
    )


def _refuse_pickle(path: str) -> None:
    """Refuses a pickle, because opening a pickle would run any code that it contains."""
    with tf.io.gfile.GFile(path, "rb") as file:
        is_pickle = file.read(4).startswith(_PICKLED)
    if is_pickle or path.endswith(_PICKLES):
        raise InputError(f"{path}: is a pickle, and because pickles can run any code, it is not opened; {NO_PICKLES}")
