"""Reads and writes checkpoints of google-research/bert: TensorFlow 1 checkpoints with tensors by name."""

import os
import re
from collections.abc import Container

import numpy as np

from bert_tf.checkpoint_formats import names, tensor_bundle
from bert_tf.checkpoint_formats.contents import OpenCheckpoint, StoredTensor, refuse_strangers
from bert_tf.checkpoint_formats.tensor_bundle import TensorBundle
from bert_tf.core.errors import InputError

PREFIX_NAME = "bert_model.ckpt"
_WORDS = "embeddings/word_embeddings"
_SCOPE = "bert/"
_OPTIMIZER = re.compile(
    r"(.*/)?(adam_[mv]|lamb_[mv]|Adam|Adam_1|Momentum|AdamWeightDecay\w*|global_step|beta[12]_power)"
)


def read(bundle: TensorBundle, **files) -> OpenCheckpoint | None:
    """Opens a checkpoint; returns None if it is not in google-research/bert's format.
    `**files`: `config`, `config_file` and `vocab_file` of `OpenCheckpoint`."""
    words = [name for name in bundle.shapes if name == _WORDS or name.endswith(f"/{_WORDS}")]
    if not words:
        return None
    if len(words) > 1:
        raise InputError(
            f"{bundle.prefix}: holds two encoders, at {words[0]} and {words[1]}; give a checkpoint with one encoder"
        )
    scope = words[0].removesuffix(_WORDS)
    in_our_spelling = {
        names.in_scope(name, scope, _SCOPE): name for name in bundle.shapes if not _OPTIMIZER.fullmatch(name)
    }  # fmt: skip
    paths = names.paths_by_name(in_our_spelling, "original")
    # Names below a weight's name belong to slots of an optimizer, or to moving averages of the weight.
    in_our_spelling = {spelled: name for spelled, name in in_our_spelling.items() if not _is_below(spelled, paths)}
    others = {spelled: name for spelled, name in in_our_spelling.items() if spelled not in paths}
    refuse_strangers(bundle.prefix, [name for spelled, name in others.items() if spelled.startswith(_SCOPE)])
    tensors = {path: _as_ours(path, bundle.stored(in_our_spelling[spelled])) for spelled, path in paths.items()}
    return OpenCheckpoint(
        source=bundle.prefix,
        format="tf1",
        tensors=tensors,
        expected_name=name_of,
        left_over=tuple(others.values()),
        optimizer_tensors=len(bundle.shapes) - len(in_our_spelling),
        **files,
    )


def _is_below(name: str, others: Container[str]) -> bool:
    parts = name.split("/")
    return any("/".join(parts[:end]) in others for end in range(1, len(parts)))


def _as_ours(path: str, stored: StoredTensor) -> StoredTensor:
    return stored.transposed() if names.row_of(path).original_transposed else stored


def name_of(path: str) -> str:
    """Returns google-research/bert's name for one of our paths; "" if there is no such name."""
    row = names.row_of(path)
    return row.original if row else ""


def write(folder: str, tensors: dict[str, np.ndarray]) -> str:
    """Writes `bert_model.ckpt` into a folder; returns the checkpoint's prefix.
    `tensors`: values by our paths."""
    named = {
        name_of(path): value.T if names.row_of(path).original_transposed else value for path, value in tensors.items()
    }
    prefix = os.path.join(folder, PREFIX_NAME)
    tensor_bundle.write_names(prefix, named)
    return prefix
