"""Reads SavedModels with a BERT inside: TF Hub's models, and models of Hugging Face's TensorFlow classes.

`saved_model.pb` has the names of the variables, and the checkpoint in the folder `variables` has their values. Both
have the same object graph.
"""

import dataclasses
import os
import re
from collections.abc import Mapping

import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.checkpoint_formats import hugging_face_tf, names
from bert_tf.checkpoint_formats.contents import OpenCheckpoint, StoredTensor, without_head_axis
from bert_tf.checkpoint_formats.tensor_bundle import TensorBundle
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError

FILE_NAME = "saved_model.pb"
_OF_TRANSFORMERS = re.compile(r"[^/]+/(bert|classifier|qa_outputs|mlm___cls|nsp___cls)/")
# The parts of tf-models-official's names, in the order in which they are replaced, and the parts of ours.
_REPLACED = (
    (r"^transformer/layer_(\d+)/", r"encoder/blocks/\1/"),
    (r"/self_attention/(query|key|value)/", r"/attention/\1/"),
    (r"/self_attention/attention_output/", "/attention/output_dense/"),
    (r"/self_attention_layer_norm/", "/attention_norm/"),
    (r"/output_layer_norm/", "/output_norm/"),
    (r"^(encoder/blocks/\d+)/output/", r"\1/output_dense/"),
    (r"^(word|position)_embeddings?/embeddings$", r"encoder/embeddings/\1_embeddings"),
    (r"^type_embeddings/embeddings$", "encoder/embeddings/segment_embeddings"),
    (r"^embeddings/layer_norm/", "encoder/embeddings/layer_norm/"),
    (r"^pooler_transform/", "encoder/pooler/"),
    (r"^(bert/)?cls/predictions/output_bias/bias$", "masked_lm/bias"),
    (r"^(bert/)?cls/predictions/transform/dense/", "masked_lm/transform/"),
    (r"^(bert/)?cls/predictions/transform/LayerNorm/", "masked_lm/layer_norm/"),
)


def folder_of(prefix: str) -> str:
    """Returns the folder of the SavedModel to which a checkpoint belongs; "" if it belongs to none."""
    folder = os.path.dirname(os.path.dirname(prefix))
    is_inside = prefix.endswith(os.path.join("variables", "variables"))
    return folder if is_inside and tf.io.gfile.exists(os.path.join(folder, FILE_NAME)) else ""


def read(prefix: str, config: BertConfig | None = None, config_file: str = "", vocab_file: str = "") -> OpenCheckpoint:
    """Opens the SavedModel to which the checkpoint at `prefix` belongs.
    `config`: the configuration; None to take it from the shapes of the variables.
    `config_file`: the file of the configuration."""
    folder, bundle = folder_of(prefix), TensorBundle(prefix)
    by_name = _stored_by_name(folder, bundle)
    by_path: dict[str, StoredTensor] = {}
    for name, stored in by_name.items():
        path, tensor = _ours(name, stored)
        if path in by_path:
            raise InputError(f"{folder}: holds two encoders; give a model with one BERT")
        if path:
            by_path[path] = tensor
    if names.FIRST_QUERY not in by_path:
        some = ", ".join(sorted(by_name)[:3])
        raise InputError(f"{folder}: holds no BERT of TF Hub or transformers (the first variables are {some})")
    shown, heads = _config_of(by_path)
    if not config and not heads:
        logging.warning(
            "%s: shows neither the number of attention heads nor the activation; %d heads and the exact GELU are "
            "assumed; copy the model's config.json there if this is wrong", folder, shown.num_attention_heads,
        )  # fmt: skip
    tensors = {path: without_head_axis(path, stored) for path, stored in by_path.items()}
    used = {stored.name for stored in by_path.values()}
    return OpenCheckpoint(
        prefix, "saved_model", tensors, expected_name=lambda path: path, config=config or shown,
        config_file=config_file if config else os.path.join(folder, FILE_NAME), vocab_file=vocab_file,
        left_over=tuple(name for name, stored in by_name.items() if stored.name not in used), num_attention_heads=heads,
    )  # fmt: skip


def _stored_by_name(folder: str, bundle: TensorBundle) -> dict[str, StoredTensor]:
    """Returns the floating-point variables of a SavedModel by their names in the graph."""
    model = saved_model_pb2.SavedModel()
    with tf.io.gfile.GFile(os.path.join(folder, FILE_NAME), "rb") as file:
        model.ParseFromString(file.read())
    nodes, graph, by_name = model.meta_graphs[0].object_graph_def.nodes, bundle.graph(), {}
    for number in range(min(len(nodes), len(graph))):
        key = graph.key(number)
        if nodes[number].WhichOneof("kind") == "variable" and key and len(bundle.shapes[key]):
            by_name[nodes[number].variable.name.removesuffix(":0")] = bundle.stored(key)
    return by_name


def _ours(name: str, stored: StoredTensor) -> tuple[str, StoredTensor]:
    """Returns our path of a variable and its tensor; the path is "" if the variable is not part of BERT."""
    if _OF_TRANSFORMERS.match(name):  # the model's name, then the names of its .h5 files
        tensor = hugging_face_tf.renamed(dataclasses.replace(stored, name=name.partition("/")[2] + ":0"))
        spelled = tensor.name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        path = names.paths_by_name([spelled], "hugging_face").get(spelled, "")
        if path and names.row_of(path).hugging_face_transposed:
            tensor = tensor.transposed()
        return path, dataclasses.replace(tensor, name=stored.name)
    path = names.respelled(name, _REPLACED)
    return (path if names.row_of(path) else ""), stored


def _config_of(by_path: Mapping[str, StoredTensor]) -> tuple[BertConfig, int | None]:
    """Returns the configuration that the shapes show, and the number of heads if the shapes show it. Hugging Face's
    SavedModels do not show the number of heads; it is 1 for each 64 units, as in all published models."""
    words = by_path[names.WORDS].shape
    query = by_path[names.FIRST_QUERY].shape
    heads = query[1] if len(query) == 3 else None
    layers = 1 + max(int(path.split("/")[2]) for path in by_path if path.startswith("encoder/blocks/"))
    config = BertConfig(
        vocab_size=words[0],
        hidden_size=words[1],
        num_hidden_layers=layers,
        num_attention_heads=heads or max(1, words[1] // 64),
        intermediate_size=by_path["encoder/blocks/0/intermediate/kernel"].shape[1],
        max_position_embeddings=by_path["encoder/embeddings/position_embeddings"].shape[0],
        type_vocab_size=by_path["encoder/embeddings/segment_embeddings"].shape[0],
        hidden_act="gelu" if heads else "gelu_erf",
    )
    return config, heads
