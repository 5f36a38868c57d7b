"""Reads and writes models in the format of Hugging Face's transformers: `config.json`, and safetensors or .h5."""

import functools
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf.checkpoint_formats import families, hugging_face_tf, names
from bert_tf.checkpoint_formats.contents import OpenCheckpoint, StoredTensor, are_equal, refuse_strangers
from bert_tf.checkpoint_formats.model_config import HUGGING_FACE_NAME, to_hugging_face
from bert_tf.checkpoint_formats.model_config import read as read_config
from bert_tf.config import BertConfig
from bert_tf.core import storage
from bert_tf.core.errors import InputError

FILE_NAME = "model.safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
# The key in `conversion.json` for entries of `config.json` that other formats cannot store.
ENTRIES = "hugging_face_entries"
_WORDS = "embeddings.word_embeddings.weight"
_SCOPE = "bert."
_POSITIONS = "encoder/embeddings/position_embeddings"
# Constant buffers that earlier versions of transformers saved.
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
# Maps the tensors of the masked-LM output layer to our paths of the weights with which these tensors are tied.
_TIED = {
    "cls.predictions.decoder.weight": names.WORDS,
    "cls.predictions.decoder.bias": "masked_lm/bias",
}
_FLOATS = ("F32", "F16", "BF16", "F64")
_CLASSES = {"span_head": "ForQuestionAnswering", "token_head": "ForTokenClassification", "head": families.SEQUENCE}


def safetensors():
    """Imports safetensors, which the extra `hf` installs."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise InputError("reading and writing safetensors needs: pip install safetensors") from error
    return safetensors


def read(path: str, config_entries: dict, **files) -> OpenCheckpoint:
    """Opens a checkpoint.
    `path`: `model.safetensors`, the index of a sharded model, or `tf_model.h5`.
    `config_entries`: entries of `config.json`; {} if there is none.
    `**files`: `config`, `config_file` and `vocab_file` of `OpenCheckpoint`."""
    stored, other_types = _open_all(path)
    words = [name for name in stored if name == _WORDS or name.endswith(f".{_WORDS}")]
    if len(words) != 1:
        some = ", ".join(sorted(stored)[:3]) or "no tensors"
        content = f"two encoders, at {words[0]} and {words[1]}" if words else f"no BERT encoder, but {some}"
        raise InputError(f"{path}: holds {content}; give a checkpoint of one BertModel")
    config = files["config"]
    family = families.FAMILIES[config.family if config else "bert"]
    scope = family.berts_name(words[0]).removesuffix(_WORDS)
    in_our_spelling = _in_our_spelling(stored, scope, family)
    paths = names.paths_by_name(in_our_spelling, "hugging_face")
    weights = [name for spelled, name in in_our_spelling.items() if spelled in paths or spelled in _TIED]
    _refuse_quantized(path, weights, other_types)
    tensors = {ours: _as_ours(ours, stored[in_our_spelling[spelled]]) for spelled, ours in paths.items()}
    if _POSITIONS in tensors:
        tensors[_POSITIONS] = family.without_first_positions(tensors[_POSITIONS])
    tensors, untied = _with_tied(path, tensors, in_our_spelling, stored, config)
    if not config_entries and config is not None and config.hidden_act == "gelu":
        logging.warning(
            "%s: hidden_act=gelu means the original's tanh form here, but the exact form in transformers; if %s was "
            "trained with the exact form, put the model's config.json into the same folder, or set hidden_act to "
            "gelu_erf",
            files["config_file"], path,
        )  # fmt: skip
    tensors = with_taggers_head(tensors, config_entries)
    others = [s for s in in_our_spelling if s not in paths and s not in _BUFFERS and s not in _TIED]
    refuse_strangers(path, [in_our_spelling[spelled] for spelled in others if spelled.startswith(_SCOPE)])
    return OpenCheckpoint(
        source=path,
        format="hugging_face",
        tensors=tensors,
        expected_name=functools.partial(name_of, family=family),
        left_over=(*(in_our_spelling[spelled] for spelled in others), *untied),
        **files,
    )


def with_taggers_head(tensors: Mapping[str, StoredTensor], config_entries: Mapping) -> dict[str, StoredTensor]:
    """Renames the classifier of a tagger. Classifiers of texts and of tokens have the same names in transformers."""
    is_tagger = is_class(config_entries, _CLASSES["token_head"])
    renamed = {name: f"token_{name}" if is_tagger and name.startswith("head/") else name for name in tensors}
    return {renamed[name]: tensor for name, tensor in tensors.items()}


def is_class(config_entries: Mapping, model_class: str) -> bool:
    """Returns whether the entries of `config.json` name a class that ends with `model_class`, of any family."""
    classes = config_entries.get("architectures")
    return isinstance(classes, list) and any(str(name).endswith(model_class) for name in classes)


def _in_our_spelling(stored: Iterable[str], scope: str, family: families.Family) -> dict[str, str]:
    """Maps tensor names in the table's spelling to the file's names, which may have another scope or old spelling, or
    the names of another family."""
    in_our_spelling = {}
    for name in stored:
        spelled = names.in_scope(family.berts_name(name), scope, _SCOPE)
        spelled = spelled.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        in_our_spelling[spelled] = name
    return in_our_spelling


def _as_ours(path: str, stored: StoredTensor) -> StoredTensor:
    return stored.transposed() if names.row_of(path).hugging_face_transposed else stored


def _refuse_quantized(path: str, weights: Iterable[str], other_types: Mapping[str, str]) -> None:
    for name in weights:
        if name in other_types:
            raise InputError(
                f"{path}: the tensor {name} has type {other_types[name]}, but weights need F32, F16, BF16 or F64; "
                "give the checkpoint before quantization"
            )


def _with_tied(
    path: str, tensors: dict[str, StoredTensor], in_our_spelling, stored, config: BertConfig | None
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Adds tied weights that the file stores only under the names in `_TIED`."""
    tensors = dict(tensors)
    for spelled, ours in _TIED.items():
        if spelled not in in_our_spelling:
            continue
        twin = stored[in_our_spelling[spelled]]
        first = tensors.setdefault(ours, twin)
        if config and first.shape[0] != config.vocab_size:
            continue  # a table of the wrong size is refused later, and reading it may take any amount of memory
        if not are_equal(first, twin, path):
            logging.warning(
                "%s: the tensor %s differs from %s, but must equal it in BERT; the masked-LM head is left out",
                path, twin.name, first.name,
            )  # fmt: skip
            outputs = {stored[in_our_spelling[name]].name for name in _TIED if name in in_our_spelling}
            outputs |= {tensor.name for ours, tensor in tensors.items() if ours.startswith("masked_lm/")}
            return {p: tensor for p, tensor in tensors.items() if not p.startswith("masked_lm/")}, sorted(outputs)
    return tensors, []


def name_of(path: str, family: families.Family = families.FAMILIES["bert"], model_class: str = "") -> str:
    """Returns the name that Hugging Face's models with heads use for one of our paths; "" if there is no such name.
    `model_class`: see `Family.own_name`."""
    row = names.row_of(path)
    name = family.own_name(row.hugging_face, model_class) if row else ""
    return name.replace("token_classifier", "classifier")


def _open_all(path: str) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Opens a file, or all files of an index."""
    if not path.endswith(INDEX_SUFFIX):
        return _open(path)
    try:
        with open(path, encoding="utf-8") as file:
            weight_map = dict(json.load(file)["weight_map"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(f"{path}: is not an index of safetensors ({error!r}); copy it again") from error
    stored: dict[str, StoredTensor] = {}
    other_types: dict[str, str] = {}
    for shard in sorted(set(weight_map.values())):
        file = os.path.join(os.path.dirname(path), os.path.basename(shard))
        tensors, types = _open(file)
        other_types |= types
        for name in (name for name, of in weight_map.items() if of == shard):
            stored[name] = tensors[name]
    return stored, other_types


def _open(path: str) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Opens a file; see `_open_all`. Tensors of the TensorFlow classes get the names of the PyTorch classes."""
    if path.endswith(".h5"):
        stored, types = hugging_face_tf.open_h5(path), {}
    else:
        stored, types = _open_safetensors(path)
    if hugging_face_tf.is_ours(stored):
        renamed = {name: hugging_face_tf.renamed(tensor) for name, tensor in stored.items()}
        types = {renamed[name].name: dtype for name, dtype in types.items()}
        stored = {tensor.name: tensor for tensor in renamed.values()}
    return stored, types


def _open_safetensors(path: str) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    package = safetensors()
    if "://" in path:
        raise InputError(f"{path}: safetensors are read from local disks only; copy the folder to this machine")
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file; copy all files of the model")
    try:
        with package.safe_open(path, "np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            shapes = {name: tuple(tensor.get_shape()) for name, tensor in slices.items()}
            types = {name: tensor.get_dtype() for name, tensor in slices.items()}
    except (package.SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as safetensors ({error}); copy it again") from error
    stored = {name: StoredTensor(name, shape, functools.partial(_read, path, name)) for name, shape in shapes.items()}
    return stored, {name: dtype for name, dtype in types.items() if dtype not in _FLOATS}


def _read(path: str, name: str) -> np.ndarray:
    with safetensors().safe_open(path, "np") as file:
        return file.get_tensor(name)


def write(folder: str, tensors: dict[str, np.ndarray], config: BertConfig, more: Mapping = {}) -> str:
    """Writes `model.safetensors` and `config.json` into a folder; returns the path of the former.
    `tensors`: values by our paths.
    `more`: additional entries of `config.json`, which replace default entries; see `label_entries`.
    Raises OSError: the weights cannot be written, for example on a full disk."""
    family = families.FAMILIES[config.family]
    if config.family != "bert":  # only BERT's classes have this head
        tensors = {path: value for path, value in tensors.items() if not path.startswith("next_sentence/")}
    heads = names.heads_in(tensors)
    task = next((name for name in _CLASSES if name in heads), "")
    is_choice = task == "head" and is_class(more, families.CHOICE)
    model_class = families.CHOICE if is_choice else _class_of(heads, task)
    named = {}
    for path, value in tensors.items():
        name = name_of(path, family, model_class)
        name = name if heads else name.removeprefix(name_of(names.WORDS, family).removesuffix(_WORDS))
        if path == _POSITIONS:
            value = np.pad(value, [(family.first_position, 0), (0, 0)])
        if name:
            named[name] = np.ascontiguousarray(value.T if names.row_of(path).hugging_face_transposed else value)
    outputs = tensors[f"{task}/dense/bias"].shape[0] if task in ("head", "token_head") else None
    entries = to_hugging_face(config, model_class, outputs)
    for key, value in (entry for entry in more.items() if entry[0] != "architectures"):
        # Keep the default labels if the labels in `more` belong to another head.
        if key not in entries or not isinstance(value, Mapping) or len(value) == len(entries[key]):
            entries[key] = value
    config_file = os.path.join(folder, HUGGING_FACE_NAME)
    storage.write_json(config_file, entries)
    path = os.path.join(folder, FILE_NAME)
    try:
        # transformers requires the value "pt", whichever library writes the file.
        safetensors().numpy.save_file(named, path, metadata={"format": "pt"})
    except safetensors().SafetensorError as error:
        raise OSError(str(error)) from error
    # The package ignores the umask and gives the file mode 600.
    shutil.copymode(config_file, path)
    return path


def label_entries(labels: Sequence[str]) -> dict:
    """Returns the entries of `config.json` that name the classes; `labels` are in the order of the class ids."""
    if not labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def read_entries(source: OpenCheckpoint) -> dict:
    """Returns the entries of `config.json`; {} for other formats."""
    is_theirs = source.format in ("hugging_face", "saved_model") and source.config
    return read_config(source.config_file)[1] if is_theirs else {}


def read_task_entries(source: OpenCheckpoint) -> dict:
    """Returns the entries of `config.json` for the labels, the problem type, [PAD]'s id, and the class if it chooses
    among texts; {} for other formats."""
    entries = read_entries(source)
    labels = {key: entries[key] for key in ("id2label", "label2id") if isinstance(entries.get(key), dict)}
    kept = ("problem_type", "pad_token_id", *(("architectures",) if is_class(entries, families.CHOICE) else ()))
    return labels | {key: entries[key] for key in kept if entries.get(key) is not None}


def _class_of(heads: set[str], task: str) -> str:
    if task:
        return _CLASSES[task]
    if "masked_lm" in heads:
        return "ForPreTraining" if "next_sentence" in heads else "ForMaskedLM"
    return "ForNextSentencePrediction" if heads else "Model"
