"""Reads and writes the configurations of all checkpoint formats."""

import dataclasses
import os

import tensorflow as tf

from bert_tf.checkpoint_formats import families, keras_hub, pair, saved_models
from bert_tf.config import BertConfig, read_json, refuse_other_architectures
from bert_tf.core.errors import InputError

ORIGINAL_NAME = "bert_config.json"
HUGGING_FACE_NAME = "config.json"
# The trainer of tf-models-official writes this file next to its checkpoints.
TF_MODELS_NAME = "params.yaml"
# Maps Hugging Face's names to our names. Hugging Face's "gelu" is the exact form, which uses the error function.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_THEIR_ACTIVATIONS = {"gelu_erf": "gelu", "gelu": "gelu_new"}
# In tf-models-official, the name "gelu" means the tanh form. tf-models-official also accepts this serialized Keras
# function, which is the exact form.
_EXACT_GELU = {"module": "builtins", "class_name": "function", "config": "gelu", "registered_name": "function"}
# Defaults of transformers' BertConfig.
_DEFAULTS = {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"}
# Encoder keys of tf-models-official whose names differ from ours.
_TF_MODELS_KEYS = {
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
}
# The types of tf-models-official's encoders that are BERT: BertEncoder and BertEncoderV2.
_TF_MODELS_ENCODERS = ("bert", "bert_v2")
_SIGNS = ("model_type", "architectures", "transformers_version")


def read(path: str) -> tuple[BertConfig, dict]:
    """Reads a configuration of any format. The function recognizes the format by the keys. A `config.json` next to
    safetensors is always in Hugging Face's format.
    `path`: the file; or two files, separated by a comma, for a pair of encoders.
    Returns:
    `config`: the configuration.
    `entries`: the entries of Hugging Face's `config.json`; {} for other formats."""
    if pair.SEPARATOR in path:
        return pair.join_configs({each: read(each)[0] for each in path.split(pair.SEPARATOR)}), {}
    if os.path.basename(path) == saved_models.FILE_NAME:
        return saved_models.read(os.path.join(os.path.dirname(path), "variables", "variables")).require_config(), {}
    if path.endswith(".yaml"):
        return _read_tf_models(path), {}
    entries = read_json(path)
    if config := keras_hub.config_of(entries, path):
        return config, {}
    is_beside = os.path.basename(path) == HUGGING_FACE_NAME and any(
        name.endswith(".safetensors") for name in tf.io.gfile.listdir(os.path.dirname(path) or ".")
    )
    try:
        if not (is_beside or any(sign in entries for sign in _SIGNS)):
            return BertConfig.from_dict(_with_activation_name(entries)), {}
        return from_hugging_face(entries), entries
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def find_file(folder: str, first: str = ORIGINAL_NAME) -> str:
    """Returns the path of a folder's configuration. If there is no configuration, returns the path of the file `first`.
    `first`: the file name that takes precedence over the file names of other formats."""
    order = sorted((ORIGINAL_NAME, HUGGING_FACE_NAME, TF_MODELS_NAME), key=lambda name: name != first)
    paths = [os.path.join(folder, name) for name in order]
    return next((path for path in paths if tf.io.gfile.exists(path)), paths[0])


def from_hugging_face(entries: dict) -> BertConfig:
    """Returns the configuration of a model in Hugging Face's format. `is_decoder` corresponds to directionality "ltr".
    For such models, Hugging Face's pooler still reads [CLS], but our pooler reads the last token.
    `entries`: entries of `config.json`."""
    model_type = entries.get("model_type", "bert")
    family = families.family_of(model_type)
    refuse_other_architectures(entries)
    names = {field.name for field in dataclasses.fields(BertConfig)} - {"directionality", "family", "pooler_activation"}
    ours = {theirs: name for name, theirs in family.keys.items()}
    own = {ours.get(key, key): value for key, value in entries.items()}
    values = _DEFAULTS | dict(family.defaults) | {key: value for key, value in own.items() if key in names}
    activation = values["hidden_act"]
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise InputError(f"hidden_act={activation!r}: must be one of {', '.join(_ACTIVATIONS)}")
    values["hidden_act"] = _ACTIVATIONS[activation]
    if values.get("embedding_size") == values.get("hidden_size", BertConfig.hidden_size):
        values["embedding_size"] = None
    if family.first_position:
        values["max_position_embeddings"] = values.get("max_position_embeddings", 512) - family.first_position
    values |= family.fixed
    return BertConfig(**values, family=model_type, directionality="ltr" if entries.get("is_decoder") else "bidi")


def to_hugging_face(config: BertConfig, model_class: str, num_outputs: int | None) -> dict:
    """Converts a configuration into the entries of Hugging Face's `config.json`.
    `config`: the configuration; its directionality is "bidi" or "ltr".
    `model_class`: the end of the class's name, such as "ForMaskedLM".
    `num_outputs`: number of outputs of a classification head; None without such a head."""
    family = families.FAMILIES[config.family]
    values = {"layer_norm_eps": config.layer_norm_eps, "embedding_size": config.embedding_width} | config.to_dict()
    values["max_position_embeddings"] += family.first_position
    values["hidden_act"] = _THEIR_ACTIVATIONS.get(config.hidden_act, config.hidden_act)
    if values.pop("directionality") == "ltr":
        values["is_decoder"] = True
    for name in {"family", *family.fixed} - {"layer_norm_eps"}:
        values.pop(name, None)
    entries = {"architectures": [family.classes + model_class], "model_type": config.family}
    entries |= {family.keys.get(name, name): value for name, value in values.items()}
    entries |= {"position_embedding_type": "absolute", "pad_token_id": 0}
    if num_outputs is not None:
        labels = [f"LABEL_{number}" for number in range(num_outputs)]
        entries["id2label"] = dict(enumerate(labels))
        entries["label2id"] = {label: number for number, label in enumerate(labels)}
    return entries


def to_tf_models(config: BertConfig) -> dict:
    """Returns the entries of a `bert_config.json` with which tf-models-official computes the same outputs as we do."""
    entries = config.to_dict()
    return entries | {"hidden_act": _EXACT_GELU} if config.hidden_act == "gelu_erf" else entries


def _with_activation_name(entries: dict) -> dict:
    """Replaces the activation function that `to_tf_models` writes with our name of this function."""
    return entries | {"hidden_act": "gelu_erf"} if entries.get("hidden_act") == _EXACT_GELU else entries


def _read_tf_models(path: str) -> BertConfig:
    """Reads the encoder's configuration from a `params.yaml`."""
    import yaml

    try:
        with tf.io.gfile.GFile(path) as file:
            encoder = yaml.safe_load(file)["task"]["model"]["encoder"]
        kind = encoder.get("type", "bert")
        entries = dict(encoder[kind]) if kind in _TF_MODELS_ENCODERS else {}
    except (yaml.YAMLError, KeyError, TypeError, ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"{path}: does not describe a BERT encoder ({error!r}); put a {ORIGINAL_NAME} in the same folder"
        ) from error
    stranger = kind if not entries else "norm_first" if entries.get("norm_first") else ""
    if stranger:
        raise InputError(
            f"{path}: describes an encoder other than BERT ({stranger}); give a checkpoint of one of the encoders "
            f"{', '.join(_TF_MODELS_ENCODERS)}"
        )
    entries = _with_activation_name({_TF_MODELS_KEYS.get(key, key): value for key, value in entries.items()})
    names = {field.name for field in dataclasses.fields(BertConfig)}
    try:
        return BertConfig.from_dict({key: value for key, value in entries.items() if key in names})
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
