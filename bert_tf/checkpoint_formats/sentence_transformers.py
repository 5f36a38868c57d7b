"""Reads and copies the files of sentence-transformers that define a model's pooling and sequence length."""

import os

import tensorflow as tf
from absl import logging

from bert_tf.core import storage

MODULES, POOLING, LENGTH = "modules.json", "1_Pooling", "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")
_OTHERS = (LENGTH, PROMPTS)


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


def copy(source: str, target: str) -> None:
    """Copies the files to another folder. If `modules.json` has an unknown module, only warns and copies nothing."""
    if unknown := [kind for kind in read_modules(source) if kind not in KNOWN_MODULES]:
        logging.warning("%s names %s; neither this module nor the pooling is converted",
                        os.path.join(source, MODULES), unknown[0])  # fmt: skip
        return
    paths = [*(os.path.join(source, name) for name in (MODULES, *_OTHERS)), pooling_file(source)]
    for path in filter(tf.io.gfile.exists, paths):
        name = os.path.relpath(path, source)
        if name.startswith(os.pardir):  # `modules.json` may contain any path
            continue
        tf.io.gfile.makedirs(os.path.dirname(os.path.join(target, name)))
        tf.io.gfile.copy(path, os.path.join(target, name))
