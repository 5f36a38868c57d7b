"""Reads presets of KerasHub: `config.json` and `model.weights.h5`, and the heads in `task.weights.h5`."""

import os
from collections.abc import Iterable, Mapping

from absl import logging

from bert_tf.checkpoint_formats.contents import OpenCheckpoint, StoredTensor, without_head_axis
from bert_tf.checkpoint_formats.hugging_face_tf import open_h5
from bert_tf.checkpoint_formats.names import WORDS, respelled, row_of
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.text.tokenizer_files import KERAS_LIBRARIES

SUFFIX = ".weights.h5"
FILE_NAME = f"model{SUFFIX}"
_TASK = f"task{SUFFIX}"
_BACKBONES = tuple(f"{library}BertBackbone" for library in KERAS_LIBRARIES)
# Maps KerasHub's names of a configuration's values to ours.
_CONFIG = {
    "vocabulary_size": "vocab_size", "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size", "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings", "num_segments": "type_vocab_size",
}  # fmt: skip
# The parts of KerasHub's names and of ours, in the order in which they are replaced: first in the backbone or in the
# head, then in both.
_BACKBONE = (
    (r"^layers/dense/", "encoder/pooler/"),
    (r"^layers/layer_normalization/", "encoder/embeddings/layer_norm/"),
    (r"^layers/reversible_embedding/vars/0", WORDS),
    (r"^layers/position_embedding/vars/0", "encoder/embeddings/position_embeddings"),
    (r"^layers/embedding/vars/0", "encoder/embeddings/segment_embeddings"),
    (r"^layers/transformer_encoder/", "encoder/blocks/0/"),
    (r"^layers/transformer_encoder_(\d+)/", r"encoder/blocks/\1/"),
    (r"/_self_attention_layer/(query|key|value)_dense/", r"/attention/\1/"),
    (r"/_self_attention_layer/output_dense/", "/attention/output_dense/"),
    (r"/_self_attention_layer_norm/", "/attention_norm/"),
    (r"/_feedforward_intermediate_dense/", "/intermediate/"),
    (r"/_feedforward_output_dense/", "/output_dense/"),
    (r"/_feedforward_layer_norm/", "/output_norm/"),
)
_HEAD = (
    (r"^layers/dense/", "head/dense/"),
    (r"^layers/masked_lm_head/_intermediate_dense/", "masked_lm/transform/"),
    (r"^layers/masked_lm_head/_intermediate_layer_norm/", "masked_lm/layer_norm/"),
    (r"^layers/masked_lm_head/vars/\d+", "masked_lm/bias"),
)
_VARIABLES = (
    (r"_norm/vars/0", "_norm/gamma"), (r"_norm/vars/1", "_norm/beta"), (r"/vars/0", "/kernel"), (r"/vars/1", "/bias"),
)  # fmt: skip
# The beginning of the names of a backbone in the weights of a whole task.
_WHOLE = "layers/bert_backbone/"


def config_of(entries: Mapping, path: str) -> BertConfig | None:
    """Returns the configuration in the entries of a preset's `config.json`; None for other files."""
    name = entries.get("registered_name")
    if not str(name).startswith(KERAS_LIBRARIES):
        return None
    if name not in _BACKBONES:
        raise InputError(f"{path}: {name} is not BERT; give a preset of BertBackbone")
    values = entries["config"]
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), values["dropout"])
    return BertConfig(**{ours: values[theirs] for theirs, ours in _CONFIG.items()}, **rates)


def read(path: str, **files) -> OpenCheckpoint:
    """Opens weights of a preset, with the head beside them, or of a whole task.
    `path`: `model.weights.h5`, or a file that `save_weights` of a task wrote.
    `**files`: `config`, `config_file` and `vocab_file` of `OpenCheckpoint`."""
    stored = open_h5(path)
    backbone = {name.removeprefix(_WHOLE): tensor for name, tensor in stored.items() if name.startswith(_WHOLE)}
    head = {name: tensor for name, tensor in stored.items() if not name.startswith(_WHOLE)}
    if not backbone:
        task = os.path.join(os.path.dirname(path), _TASK)
        backbone, head = stored, open_h5(task) if os.path.isfile(task) else {}
    tensors = _named(backbone, _BACKBONE) | _named(head, _HEAD)
    if WORDS not in tensors:
        raise InputError(f"{path}: holds no BERT of KerasHub; give a preset of BertBackbone, or its weights")
    if "masked_lm/bias" in tensors:
        logging.warning(
            "%s: KerasHub's masked-LM head computes the exact GELU with an epsilon of 1e-5, so its predictions differ "
            "slightly from those of this project's head", path,
        )  # fmt: skip
    names = {tensor.name for tensor in tensors.values()}
    others = [name for name in (*backbone, *head) if name not in names and not name.startswith("optimizer/")]
    return OpenCheckpoint(
        path, "keras_hub", tensors, expected_name=lambda ours: ours, left_over=tuple(others),
        optimizer_tensors=len(backbone) + len(head) - len(names) - len(others), **files,
    )  # fmt: skip


def _named(stored: Mapping[str, StoredTensor], pairs: Iterable[tuple[str, str]]) -> dict[str, StoredTensor]:
    """Returns the tensors whose names can be replaced by our paths, with our shapes."""
    by_path = {respelled(name, (*pairs, *_VARIABLES)): tensor for name, tensor in stored.items()}
    return {path: without_head_axis(path, tensor) for path, tensor in by_path.items() if row_of(path)}
