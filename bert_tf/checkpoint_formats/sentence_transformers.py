"""The files of sentence-transformers that define a model's pooling, normalization, prompts and sequence length."""

import os
from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from bert_tf.config import BertConfig, read_json, read_json_if_exists
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.text import tokenizer_files

MODULES, POOLING, LENGTH = "modules.json", "1_Pooling", "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
# The values of `similarity_fn_name`; the similarity of a distance is its negative.
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")
# The names of modes in the entries `pooling_mode_NAME`; since version 5, the entry `pooling_mode` has the mode itself.
_NAMES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
_MODES = {name: mode for mode, name in _NAMES.items()} | {mode: mode for mode in _NAMES}


def read_modules(folder: str) -> dict[str, dict]:
    """Reads the modules in a folder's `modules.json`, by kind of module; {} if the file is missing."""
    path = os.path.join(folder, MODULES)
    if not tf.io.gfile.exists(path):
        return {}
    with storage.json_file(path, "copy it again, or delete it and give --pooling and --normalize") as modules:
        if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
            raise ValueError("it is not a list of JSON objects")
    return {str(module.get("type", "")).rsplit(".", 1)[-1]: module for module in modules}


def pooling_file(folder: str) -> str:
    path = read_modules(folder).get("Pooling", {}).get("path")
    return os.path.join(folder, str(path or POOLING), "config.json")


def read_prompts(folder: str) -> dict[str, str]:
    """Returns the texts that sentence-transformers can write before a text, by name. If no prompt is for queries or
    for documents, this prompt is "", and not the default prompt."""
    prompts, path = {"query": "", "document": ""} | (_prompts(folder).get("prompts") or {}), pooling_file(folder)
    if any(prompts.values()) and read_json_if_exists(path).get("include_prompt") is False:
        raise InputError(
            f"{path}: include_prompt is false, which is not supported; remove the prompts from "
            f"{os.path.join(folder, PROMPTS)}"
        )
    return prompts


def document_prompt(prompts: Mapping[str, str]) -> str:
    """Returns the name of the prompt for documents, as sentence-transformers looks for it; "" if there is none."""
    names = [name for name in ("document", "passage", "corpus") if name in prompts]
    return next(filter(prompts.get, names), "".join(names[:1]))


def stated_dimensions(folder: str) -> int | None:
    """Returns how many of the first numbers of a vector sentence-transformers keeps; None for all."""
    return _prompts(folder).get("truncate_dim")


def has_sigmoid(folder: str, config_entries: Mapping) -> bool:
    """Returns whether a cross-encoder's score is the sigmoid of its output; false for other models.
    `config_entries`: entries of Hugging Face's `config.json`."""
    own, older = _prompts(folder), config_entries.get("sentence_transformers") or {}
    is_own = own.get("model_type") == "CrossEncoder"
    stated = (own if is_own else {}).get("activation_fn") or older.get("activation_fn")
    stated = str(stated or config_entries.get("sbert_ce_default_activation_function") or "")
    name = stated.rpartition(".")[2]
    if name not in ("", "Identity", "Sigmoid"):
        raise InputError(f"{folder}: the cross-encoder's activation function {stated} is not supported")
    return name == "Sigmoid" or (is_own and not name)


def similarity(folder: str) -> str:
    """Returns how sentence-transformers compares a checkpoint's vectors; a name in SIMILARITIES."""
    name = _prompts(folder).get("similarity_fn_name") or "cosine"
    if name not in SIMILARITIES:
        path = os.path.join(folder, PROMPTS)
        raise InputError(f"{path}: similarity_fn_name is {name!r}; only {', '.join(SIMILARITIES)} are supported")
    return name


def _prompts(folder: str) -> dict:
    path = os.path.join(folder, PROMPTS)
    entries = read_json_if_exists(path)
    prompts, default = entries.get("prompts") or {}, entries.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise InputError(f"{path}: prompts is not an object of texts; fix this entry, or delete it")
    if default is not None and default not in prompts:
        raise InputError(f"{path}: default_prompt_name is {default!r}, which prompts does not contain; fix this entry")
    return entries


def write(
    folder: str, pooling: str, normalize: bool, hidden_size: int, max_seq_length: int, prompts: Mapping[str, str],
    similarity: str = "cosine",
) -> None:  # fmt: skip
    """Writes the files with which sentence-transformers pools the vectors of an encoder in the same folder.
    `pooling`: "cls", "mean" or "max".
    `prompts`: texts before a text, by name.
    `similarity`: a name in SIMILARITIES."""
    modules = [("", "Transformer"), (POOLING, "Pooling"), *([("2_Normalize", "Normalize")] if normalize else [])]
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    pooled = {f"pooling_mode_{name}": mode == pooling for mode, name in _NAMES.items()}
    contents = {
        MODULES: listed,
        os.path.join(POOLING, "config.json"): {"word_embedding_dimension": hidden_size, **pooled},
        LENGTH: {"max_seq_length": max_seq_length, "do_lower_case": False},
        PROMPTS: {"prompts": dict(prompts), "default_prompt_name": None, "similarity_fn_name": similarity},
    }
    tf.io.gfile.makedirs(os.path.join(folder, POOLING))
    for name, entries in contents.items():
        storage.write_json(os.path.join(folder, name), entries)


def copy(source: str, target: str) -> None:
    """Copies the files to another folder. If `modules.json` has an unknown module, only warns and copies nothing."""
    if unknown := [kind for kind in read_modules(source) if kind not in KNOWN_MODULES]:
        logging.warning("%s names %s; neither this module nor the pooling is converted",
                        os.path.join(source, MODULES), unknown[0])  # fmt: skip
        return
    paths = [*(os.path.join(source, name) for name in (MODULES, LENGTH, PROMPTS)), pooling_file(source)]
    for path in filter(tf.io.gfile.exists, paths):
        name = os.path.relpath(path, source)
        if name.startswith(os.pardir):  # `modules.json` may contain any path
            continue
        tf.io.gfile.makedirs(os.path.dirname(os.path.join(target, name)))
        tf.io.gfile.copy(path, os.path.join(target, name))


def is_stated(folder: str) -> bool:
    """Returns whether a checkpoint's folder says how sentence-transformers pools the checkpoint's vectors."""
    return any(tf.io.gfile.exists(os.path.join(folder, name)) for name in (MODULES, POOLING))


def check_pooling(mode: str | None, config: BertConfig) -> None:
    """Refuses the vector of [CLS] of a left-to-right model, in which [CLS] reads no other token."""
    if mode == "cls" and config.directionality.startswith("ltr"):
        raise InputError("--pooling=cls: [CLS] reads no other token in a left-to-right model; give mean or max")


def pooling_mode(folder: str) -> str:
    """Returns how sentence-transformers pools a checkpoint's vectors: "cls", "mean" or "max"."""
    pooling = pooling_file(folder)
    if not tf.io.gfile.exists(pooling):
        raise InputError(f"--sentence_vectors: there is no {pooling}; give --pooling=cls, mean or max")
    return _mode(read_json(pooling), pooling)


def is_normalized(folder: str) -> bool:
    """Returns whether sentence-transformers normalizes a checkpoint's vectors; false without `modules.json`."""
    kinds = read_modules(folder)
    if unknown := [kind for kind in kinds if kind not in KNOWN_MODULES]:
        path = os.path.join(folder, MODULES)
        raise InputError(
            f"{path}: names {unknown[0]}, which is not supported; --pooling and --normalize give the vectors before it"
        )
    return "Normalize" in kinds


def check_texts(folder: str, do_lower_case: bool) -> None:
    """Refuses a checkpoint for which sentence-transformers changes each text before tokenization.
    `do_lower_case`: whether the tokenizer lower-cases text. If so, texts that are lower-cased before give the same
      tokens."""
    path = os.path.join(folder, LENGTH)
    if not do_lower_case and read_json_if_exists(path).get("do_lower_case") is True:
        raise InputError(
            f"{path}: do_lower_case, which is not supported for a cased tokenizer; lower-case the texts yourself, and "
            "set the entry to false"
        )


def prompt_of(folder: str, name: str) -> str:
    """Returns the text that sentence-transformers writes before each text; `name` is "" for the default prompt."""
    prompts, default = read_prompts(folder), _prompts(folder).get("default_prompt_name")
    if name and name not in prompts:
        listed = ", ".join(prompts) or "none"
        raise InputError(f"--prompt_name={name}: {folder} has the prompts {listed}; give one of them, or --prompt")
    return prompts.get(name or default, "")


def _mode(entries: dict, path: str) -> str:
    prefix = "pooling_mode_"
    modes = [name.removeprefix(prefix) for name, value in entries.items() if name.startswith(prefix) and value is True]
    if isinstance(entries.get("pooling_mode"), str):
        modes = [entries["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in _MODES:
        selected = " and ".join(modes) or "nothing"
        raise InputError(f"{path}: selects {selected}; only cls, mean or max is supported; choose with --pooling")
    return _MODES[modes[0]]


def longest_sentence(folder: str) -> int | None:
    """Returns the row length that sentence-transformers uses with a checkpoint; None if the folder does not state it.
    The length may be more than the model's number of positions. Since version 6 of sentence-transformers, only
    `tokenizer_config.json` states the length."""
    own = read_json_if_exists(os.path.join(folder, LENGTH)).get("max_seq_length")
    lengths = (own, tokenizer_files.read_config(folder).get("model_max_length"))
    return next((length for length in lengths if isinstance(length, int) and length >= 3), None)
