"""Reads presets of KerasHub: `config.json` and `model.weights.h5`, and the heads in `task.weights.h5`."""

import os
import re
from collections.abc import Mapping

from absl import logging

from bert_tf.checkpoint_formats.contents import OpenCheckpoint, StoredTensor, without_head_axis
from bert_tf.checkpoint_formats.hugging_face_tf import open_h5
from bert_tf.checkpoint_formats.names import WORDS
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
# Maps the layers of a backbone to ours, and the layers of a transformer layer to the parts of our layer.
_LAYERS = {
    "dense": "encoder/pooler", "layer_normalization": "encoder/embeddings/layer_norm",
    "reversible_embedding": WORDS,
    "position_embedding": "encoder/embeddings/position_embeddings",
    "embedding": "encoder/embeddings/segment_embeddings",
}  # fmt: skip
_PARTS = {
    "_self_attention_layer/query_dense": "attention/query", "_self_attention_layer/key_dense": "attention/key",
    "_self_attention_layer/value_dense": "attention/value",
    "_self_attention_layer/output_dense": "attention/output_dense", "_self_attention_layer_norm": "attention_norm",
    "_feedforward_intermediate_dense": "intermediate", "_feedforward_output_dense": "output_dense",
    "_feedforward_layer_norm": "output_norm",
}  # fmt: skip
_HEADS = {
    "dense": "head/dense", "masked_lm_head/_intermediate_dense": "masked_lm/transform",
    "masked_lm_head/_intermediate_layer_norm": "masked_lm/layer_norm", "masked_lm_head": "masked_lm",
}  # fmt: skip
_BLOCK = re.compile(r"transformer_encoder(?:_(\d+))?/(.*)")
_VARIABLE = re.compile(r"layers/(?P<layer>.*)/vars/(?P<index>\d+)")
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
    tensors = _named(backbone, _LAYERS) | _named(head, _HEADS)
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


def _named(stored: Mapping[str, StoredTensor], layers: Mapping[str, str]) -> dict[str, StoredTensor]:
    """Returns the tensors of these layers and of transformer layers by our paths, with our shapes."""
    tensors = {}
    for name, tensor in stored.items():
        variable = _VARIABLE.fullmatch(name)
        block = _BLOCK.fullmatch(variable["layer"]) if variable else None
        ours = layers.get(variable["layer"], "") if variable else ""
        if block and block[2] in _PARTS:
            ours = f"encoder/blocks/{block[1] or 0}/{_PARTS[block[2]]}"
        if not ours:
            continue
        is_norm = ours.endswith("_norm")
        if ours == "masked_lm":
            ours = "masked_lm/bias"
        elif not ours.endswith("_embeddings"):
            ours += "/" + (("gamma", "beta") if is_norm else ("kernel", "bias"))[int(variable["index"])]
        tensors[ours] = without_head_axis(ours, tensor)
    return tensors
