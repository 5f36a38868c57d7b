"""Reads and writes checkpoints of encoders, and of models with an encoder, in tf-models-official's format.

The checkpoints are in TensorFlow 2's format. The reader finds the encoder by its attributes, anywhere in the
checkpoint. These attributes are the same in tf-models-official's `BertEncoder` and `BertEncoderV2`. Attention kernels
have a separate axis for the heads.
"""

import os

import numpy as np

from bert_tf.checkpoint_formats import names, tensor_bundle
from bert_tf.checkpoint_formats.contents import OpenCheckpoint, refuse_strangers, without_head_axis
from bert_tf.checkpoint_formats.tensor_bundle import VALUE, ObjectGraph, TensorBundle
from bert_tf.checkpoint_formats.tf1 import PREFIX_NAME
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError

# Attribute path of the next-sentence output layer in BertPretrainer, which uses the encoder's pooler. `names.ROWS`
# has the path of this layer in BertPretrainerV2.
_FIRST_NEXT_SENTENCE = ("classification", "layer_with_weights-0")
# Maps attribute paths to our paths, for poolers that belong to a head. The encoder's own pooler is not among them.
_POOLERS = {
    ("classification_heads", "0", "dense"): "next_sentence/pooler",
    ("next_sentence.pooler_dense",): "next_sentence/pooler",
    ("classifier", "dense"): "head/pooler",
}


def read(bundle: TensorBundle, **files) -> OpenCheckpoint | None:
    """Opens a checkpoint; returns None for other formats. The arguments and errors are the same as for `tf1.read`."""
    graph = bundle.graph()
    encoders = [node for node in range(len(graph)) if _is_encoder(graph, node) and not _repeats_child(graph, node)]
    if not encoders:
        return None
    if len(encoders) > 1:
        raise InputError(f"{bundle.prefix}: holds {len(encoders)} encoders; give a checkpoint with one encoder")
    keys = _encoder_keys(bundle.prefix, graph, encoders[0]) | _head_keys(bundle, graph, encoders[0])
    heads = bundle.shapes[keys[names.FIRST_QUERY]][-2]
    config = files["config"]
    if config is not None and config.num_attention_heads != heads:
        raise InputError(
            f"{files['config_file']}: num_attention_heads={config.num_attention_heads}, but the tensor "
            f"{keys[names.FIRST_QUERY].removesuffix(VALUE)} of {bundle.prefix} has {heads} "
            "heads; replace this file with the checkpoint's own configuration"
        )
    return OpenCheckpoint(
        source=bundle.prefix,
        format="tf_models",
        tensors={path: without_head_axis(path, bundle.stored(key)) for path, key in keys.items()},
        expected_name=name_of,
        **bundle.left_over(keys.values()),
        num_attention_heads=heads,
        **files,
    )


def _is_encoder(graph: ObjectGraph, node: int) -> bool:
    children = graph.children(node)
    blocks = children.get("_transformer_layers")
    return "_embedding_layer" in children and blocks is not None and bool(graph.children(blocks))


def _repeats_child(graph: ObjectGraph, node: int) -> bool:
    """Returns whether an object has the same layers as an encoder that is the object's child. `write` stores such
    models. Only the child counts as the encoder."""
    children = graph.children(node)
    return any(
        _is_encoder(graph, child)
        and all(graph.children(child)[name] == children[name] for name in ("_embedding_layer", "_transformer_layers"))
        for child in children.values()
    )


def _encoder_keys(source: str, graph: ObjectGraph, encoder: int) -> dict[str, str]:
    """Maps our paths of the encoder's weights to tensor names in the file."""
    blocks = graph.children(graph.children(encoder)["_transformer_layers"])
    keys: dict[str, str] = {}
    for row in names.ROWS:
        if not row.ours.startswith("encoder/"):
            continue
        for layer in sorted(blocks, key=int) if "{}" in row.ours else [""]:
            node = graph.resolve(encoder, tuple(part.format(layer) for part in row.tf_models))
            if node is not None and (key := graph.key(node)):
                keys[row.ours.format(layer)] = key
    refuse_strangers(source, [path for path, key in graph.variables_below(encoder) if key not in keys.values()])
    if names.FIRST_QUERY not in keys:
        raise InputError(
            f"{source}: the tensor {name_of(names.FIRST_QUERY)} is missing; "
            "the checkpoint is incomplete or has another architecture; copy it again, or give a BERT checkpoint"
        )
    return keys


def _head_keys(bundle: TensorBundle, graph: ObjectGraph, encoder: int) -> dict[str, str]:
    """Maps our paths of the heads' weights to tensor names in the file, for all models that contain the encoder."""
    places = {row.tf_models[:-1]: row.ours.rsplit("/", 1)[0] for row in names.ROWS if names.heads_in([row.ours])}
    places[("masked_lm",)] = "masked_lm"
    places[_FIRST_NEXT_SENTENCE] = "next_sentence/dense"
    keys: dict[str, str] = {}
    for model in range(len(graph)):
        if encoder not in graph.children(model).values():
            continue
        for place, path in (places | _POOLERS).items():
            node = graph.resolve(model, place)
            if node is None:
                continue
            for name, child in graph.children(node).items():
                ours = f"{path}/{'bias' if name == 'output_bias/bias' else name}"
                is_ours = names.row_of(ours) or path in _POOLERS.values()
                if is_ours and name in _LEAVES and (key := graph.key(child)):
                    keys.setdefault(ours, key)
    return _next_sentence_of_two(bundle, keys)


_LEAVES = ("kernel", "bias", "gamma", "beta", "output_bias/bias")


def _next_sentence_of_two(bundle: TensorBundle, keys: dict[str, str]) -> dict[str, str]:
    """Leaves out a pre-training model's first head if this head does not have the next-sentence task's two classes."""
    output = keys.get("next_sentence/dense/kernel")
    if output is None or bundle.shapes[output][-1] == 2:
        return keys
    return {path: key for path, key in keys.items() if not path.startswith("next_sentence/")}


def name_of(path: str) -> str:
    """Returns the attribute path in tf-models-official for one of our paths; "" if there is no such path."""
    row = names.row_of(path)
    scope = "encoder/" if path.startswith("encoder/") else "model/"
    return scope + "/".join(row.tf_models) if row else ""


def write(folder: str, tensors: dict[str, np.ndarray], config: BertConfig) -> str:
    """Writes `bert_model.ckpt` into a folder; tf-models-official's encoders and models with heads can load this file.
    Without heads, `encoder` and `model` are both the encoder. With heads, `model` is the whole model. This model refers
    to the encoder by the attributes that tf-models-official's models use, and also has the encoder's own attributes.
    For the arguments, see `hugging_face.write`."""
    encoder_places, heads = {}, {}
    for path, value in tensors.items():
        row = names.row_of(path)
        if row and path.startswith("encoder/"):
            encoder_places[row.tf_models] = _as_theirs(path, value, config)
        elif row:
            heads[row.tf_models] = value
    encoder = tensor_bundle.object_tree(encoder_places)
    prefix = os.path.join(folder, PREFIX_NAME)
    if not heads:
        tensor_bundle.write_objects(prefix, {"encoder": encoder, "model": encoder})
        return prefix
    for place, path in _POOLERS.items():
        # tf-models-official's next-sentence head has its own pooler, which gets the values of our pooler.
        pooler = {name: tensors.get(f"{path}/{name}") for name in ("kernel", "bias")}
        if path.startswith("next_sentence") and pooler["kernel"] is None:
            pooler = {name: tensors.get(f"encoder/pooler/{name}") for name in ("kernel", "bias")}
        if (*place[:-1], "out_proj", "kernel") in heads and pooler["kernel"] is not None:
            heads |= {(*place, name): value for name, value in pooler.items()}
    model = tensor_bundle.object_tree(heads)
    objects = {"encoder": encoder, "model": model}
    # The encoder's attribute is `encoder_network` in BertPretrainerV2, `_network` in the task models, and `encoder` in
    # BertPretrainer.
    model.encoder_network = model._network = model.encoder = encoder
    # Some programs restore an encoder as `model`, so the model also gets the encoder's attributes.
    for name in dict.fromkeys(place[0] for place in encoder_places):
        setattr(model, name, getattr(encoder, name))
    if hasattr(model, "masked_lm"):
        objects["masked_lm"] = model.masked_lm
    if hasattr(model, "classification_heads"):
        head = getattr(model.classification_heads, "0")
        # BertPretrainer uses the encoder's pooler, so it cannot use a head that was trained with another pooler.
        if "next_sentence/pooler/kernel" not in tensors:
            model.classification = tensor_bundle.object_tree({})
            setattr(model.classification, _FIRST_NEXT_SENTENCE[-1], head.out_proj)
        if hasattr(head, "dense"):
            objects["next_sentence.pooler_dense"] = head.dense
    tensor_bundle.write_objects(prefix, objects)
    return prefix


def _as_theirs(path: str, value: np.ndarray, config: BertConfig) -> np.ndarray:
    """Splits H into the axes A and D."""
    if "/attention/" not in path or path.endswith("output_dense/bias"):
        return value
    split = (config.num_attention_heads, config.head_size)
    if path.endswith("bias"):
        return value.reshape(split)
    return value.reshape((*split, -1) if path.endswith("output_dense/kernel") else (-1, *split))
