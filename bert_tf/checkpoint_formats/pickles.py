"""Recognizes pickles, which bert_tf never opens, and gives the command that converts them to safetensors."""

import glob
import os
import re
from collections.abc import Iterable

import tensorflow as tf

from bert_tf.checkpoint_formats import hugging_face
from bert_tf.core.errors import InputError

# The first bytes of files from torch.save: a zip archive, or a bare pickle.
_PICKLED = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_PICKLES = (".bin", ".pt", ".pth", ".pkl")
# The part number in the name of a split checkpoint.
_PICKLED_PART = re.compile(r"-\d{5}(-of-\d{5})(?=\.\w+$)")


def pickled_weights(names: Iterable[str]) -> str | None:
    """Returns the name that most likely belongs to a pickle with weights; None if no name belongs to a pickle."""
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    # A folder may also contain pickles of the optimizer's state and of the training arguments.
    return min(pickles, key=lambda name: not name.startswith(("pytorch_model", "model")), default=None)


def pickle_command(path: str) -> str:
    """Returns a shell command that converts a pickle to safetensors in the same folder.

    The command does not run any code in the pickle.

    Args:
      path: the pickle, or one part of a checkpoint that is split into several pickles.
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


def refuse_pickle(path: str) -> None:
    """Refuses a pickle, because opening a pickle would run any code that it contains.

    Raises:
      InputError: the file is a pickle.
    """
    with tf.io.gfile.GFile(path, "rb") as file:
        is_pickle = file.read(4).startswith(_PICKLED)
    if is_pickle or path.endswith(_PICKLES):
        raise InputError(
            f"{path}: is a pickle, and because pickles can run any code, it is not opened; convert it to "
            f"{hugging_face.FILE_NAME} with: {pickle_command(path)}"
        )
