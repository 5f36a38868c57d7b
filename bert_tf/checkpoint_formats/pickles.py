"""Recognizes pickles, which bert_tf never opens."""

from collections.abc import Iterable

import tensorflow as tf

from bert_tf.core.errors import InputError

# The first bytes of files from torch.save: a zip archive, or a bare pickle.
_PICKLED = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_PICKLES = (".bin", ".pt", ".pth", ".pkl")
REMEDY = "save the model as safetensors (save_pretrained of transformers does), and give the new folder"


def pickled_weights(names: Iterable[str]) -> str | None:
    """Returns the first name that belongs to a pickle; None if no name does."""
    return min((name for name in names if name.endswith(_PICKLES)), default=None)


def refuse_pickle(path: str) -> None:
    """Refuses a pickle, because opening a pickle would run any code that it contains.

    Raises:
      InputError: the file is a pickle.
    """
    with tf.io.gfile.GFile(path, "rb") as file:
        is_pickle = file.read(4).startswith(_PICKLED)
    if is_pickle or path.endswith(_PICKLES):
        raise InputError(f"{path}: is a pickle, and because pickles can run any code, it is not opened; {REMEDY}")
