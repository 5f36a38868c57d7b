"""Opens files of Hugging Face's TensorFlow classes: `tf_model.h5`, and safetensors that these classes wrote.

transformers removed these classes in version 5. The tensors get the names and the layout of the PyTorch classes, so
that `hugging_face.read` reads both.
"""

import functools
import re
from collections.abc import Iterable

import numpy as np

from bert_tf.checkpoint_formats.contents import StoredTensor
from bert_tf.checkpoint_formats.names import respelled
from bert_tf.core.errors import InputError
from bert_tf.core.hub import H5_NAME

FILE_NAME = H5_NAME
# The prefix of a name in an .h5 file: a layer and the model's name. The layer, or a layer with tied weights, follows.
_H5_PREFIX = re.compile(r"^[^/]+/tf_[^/]+/|^([^/]+)/[^/]+/(?=\1/)")
_REPLACED = (
    (r":\d+$", ""),
    (r"/layer_\._(\d+)/", r"/layer/\1/"),
    (r"^(mlm|nsp)___cls/", "cls/"),
    (r"(_embeddings)/(weight|embeddings)$", r"\1/weight"),
    (r"/kernel$", "/weight"),
)


def is_ours(names: Iterable[str]) -> bool:
    """Returns whether a file's tensors have names of the TensorFlow classes."""
    return any("LayerNorm/gamma:" in name for name in names)


def renamed(stored: StoredTensor) -> StoredTensor:
    """Returns a tensor with the name and the layout of the PyTorch classes."""
    name = _H5_PREFIX.sub("", stored.name)
    is_kernel = name.endswith("/kernel:0")
    spelled = respelled(name, _REPLACED).replace("/", ".")
    tensor = StoredTensor(spelled, stored.shape, stored.read)
    return tensor.transposed() if is_kernel else tensor


def open_h5(path: str) -> dict[str, StoredTensor]:
    """Opens an .h5 file; returns its tensors by their names in the file."""
    import h5py

    if "://" in path:
        raise InputError(f"{path}: .h5 files are read from local disks only; copy the folder to this machine")
    stored: dict[str, StoredTensor] = {}

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
            # Whoever converts and publishes the model would publish that file.
            raise InputError(f"{path}: the tensor {name} is in another file, which is not read; give a whole file")
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
            stored[name] = StoredTensor(name, item.shape, functools.partial(_read, path, name))

    try:
        with h5py.File(path, "r") as file:
            file.visititems(add)
    except OSError as error:
        raise InputError(f"{path}: cannot be read as HDF5 ({error}); copy it again") from error
    return stored


def _read(path: str, name: str) -> np.ndarray:
    import h5py

    with h5py.File(path, "r") as file:
        return file[name][()]
