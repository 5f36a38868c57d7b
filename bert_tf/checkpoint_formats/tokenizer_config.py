"""Determines whether a checkpoint's tokenizer lower-cases text, from the tokenizer's files or the checkpoint's name."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.checkpoint_formats import hub, keras_hub, saved_models
from bert_tf.config import read_json
from bert_tf.core import storage
from bert_tf.tokenization import TOKENIZER_JSON

NAME = "tokenizer_config.json"
# Matches the names of models that google-research/bert, tf-models-official and Hugging Face have published.
_PUBLISHED = re.compile(r"(?:[a-z]+_)*?(un)?cased_L-\d+_H-\d+.*|bert-(?:[a-z]+-)*?(un)?cased(?:-.*)?")
_LOWER_CASED = ("multilingual_L-12_H-768_A-12", "chinese_L-12_H-768_A-12")
_SPECIAL = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


@dataclasses.dataclass(frozen=True)
class Casing:
    """The known rules by which a tokenizer normalizes text.

    Attributes:
      do_lower_case: whether the tokenizer lower-cases text; None if unknown.
      source: the file or name that determines `do_lower_case`, for messages.
      strip_accents: whether the tokenizer strips accents; None means the same as `do_lower_case`.
      tokenize_chinese_chars: whether each Chinese character is a word.
    """

    do_lower_case: bool | None = None
    source: str = ""
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True

    def other_rule(self, do_lower_case: bool) -> str:
        """Returns a rule that `BertTokenizer` with this `do_lower_case` does not follow; "" if it follows all rules."""
        if self.strip_accents is not None and self.strip_accents != do_lower_case:
            return f"strip_accents={str(self.strip_accents).lower()}"
        return "" if self.tokenize_chinese_chars else "tokenize_chinese_chars=false"


def find(folder: str, path: str = "") -> Casing:
    """Finds the rules of a checkpoint's tokenizer.

    Args:
      path: the path that the user gave, for example `hf://owner/model`.
    """
    entries = read(folder) or keras_hub.tokenizer_entries(folder)
    file = os.path.join(folder, NAME if "do_lower_case" in entries else TOKENIZER_JSON)
    stated = entries.get("do_lower_case", _lower_cases_json(folder))
    if stated is None and (lower := saved_models.do_lower_case(folder)) is not None:
        return Casing(lower, os.path.join(folder, saved_models.FILE_NAME))
    strip = entries.get("strip_accents")
    rules = {
        "strip_accents": strip if isinstance(strip, bool) else None,
        "tokenize_chinese_chars": entries.get("tokenize_chinese_chars") is not False,
    }
    if isinstance(stated, bool):
        return Casing(stated, file, **rules)
    name = os.path.basename(folder if "://" in folder else os.path.abspath(folder))
    if path.startswith(hub.SCHEME):
        name = path.removeprefix(hub.SCHEME).partition("@")[0].rsplit("/", 1)[-1]
    if name in _LOWER_CASED:
        return Casing(True, f"the name {name}", **rules)
    if found := _PUBLISHED.fullmatch(name):
        return Casing("un" in found.groups(), f"the name {name}", **rules)
    return Casing(None, os.path.join(folder, NAME), **rules)


def _lower_cases_json(folder: str) -> bool | None:
    """Reads the casing from transformers' `tokenizer.json`; None if the file is missing or has no such entry."""
    path = os.path.join(folder, TOKENIZER_JSON)
    normalizer = read_json(path).get("normalizer") if tf.io.gfile.exists(path) else None
    return normalizer.get("lowercase") if isinstance(normalizer, dict) else None


def read(folder: str) -> dict:
    """Reads the entries of a folder's `tokenizer_config.json`; {} if the file is missing."""
    path = os.path.join(folder, NAME)
    return read_json(path) if tf.io.gfile.exists(path) else {}


def write(folder: str, do_lower_case: bool | None, max_length: int, known: Mapping = {}) -> None:
    """Writes a `tokenizer_config.json` with which transformers tokenizes like `BertTokenizer`.

    Args:
      do_lower_case: whether the tokenizer lower-cases text; None if unknown.
      max_length: the maximum number of tokens in a row.
      known: additional entries to write, for example from the folder of the converted checkpoint.
    """
    entries = {"tokenizer_class": "BertTokenizer", **_SPECIAL, "model_max_length": max_length, **known}
    # transformers writes 10^30 if the maximum length is unknown.
    entries["model_max_length"] = min(entries["model_max_length"], max_length)
    if not str(entries["tokenizer_class"]).startswith("Bert"):  # other classes need a tokenizer.json
        entries["tokenizer_class"] = "BertTokenizer"
    if do_lower_case is not None:
        entries["do_lower_case"] = do_lower_case
    storage.write_text(os.path.join(folder, NAME), json.dumps(entries, indent=2) + "\n")
