"""Reads and writes checkpoints of bert_tf: TensorFlow 2 checkpoints of `model`, `optimizer` and `global_step`."""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from bert_tf.checkpoint_formats import names, tensor_bundle
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.checkpoint_formats.tensor_bundle import TensorBundle
from bert_tf.config import PAIR
from bert_tf.core.errors import InputError


def read(bundle: TensorBundle, **files) -> OpenCheckpoint | None:
    """Opens a checkpoint; returns None for other formats. The arguments and errors are the same as for `tf1.read`."""
    graph = bundle.graph()
    # The encoder need not have a pooler, since converted checkpoints of other projects may lack a pooler.
    encoders = [node for node in range(len(graph)) if {"embeddings", "blocks"} <= graph.children(node).keys()]
    pairs = [node for node in range(len(graph)) if set(PAIR.split("+")) <= graph.children(node).keys()]
    encoders = pairs or encoders
    if not encoders:
        return None
    if len(encoders) > 1:
        raise InputError(f"{bundle.prefix}: holds {len(encoders)} encoders; give a checkpoint with one encoder")
    keys, own = {f"encoder/{path}": key for path, key in graph.variables_below(encoders[0])}, {}
    for node in range(len(graph)):
        children = graph.children(node)
        if children.get("encoder") == encoders[0]:
            below = {path: key for path, key in graph.variables_below(node) if path not in keys}
            own |= {path: key for path, key in below.items() if names.is_of_own_head(path)}
            keys |= {path: key for path, key in below.items() if names.row_of(path)}
    tensors, own_heads = (
        {path: dataclasses.replace(bundle.stored(key), name=path) for path, key in keys_by_path.items()}
        for keys_by_path in (keys, own)
    )
    return OpenCheckpoint(
        source=bundle.prefix,
        format="bert_tf",
        tensors=tensors,
        own_heads=own_heads,
        expected_name=lambda path: path,
        **bundle.left_over(keys.values()),
        **files,
    )


def write(folder: str, tensors: dict[str, np.ndarray]) -> str:
    """Writes `ckpt-0` into a folder, and returns the checkpoint's prefix. For the arguments, see `tf1.write`."""
    objects = {
        "model": tensor_bundle.object_tree({tuple(path.split("/")): value for path, value in tensors.items()}),
        "global_step": tf.Variable(np.int64(0)),
    }
    prefix = os.path.join(folder, "ckpt-0")
    tensor_bundle.write_objects(prefix, objects)
    return prefix
