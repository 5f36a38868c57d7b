"""Pools the vectors of a text's tokens into one vector, as sentence-transformers does.

Letters: N texts, T tokens, L layers, H hidden size.
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from bert_tf.checkpoint_formats import sentence_transformers, tokenizer_config
from bert_tf.config import read_json
from bert_tf.core.errors import InputError

# Maps sentence-transformers' names to values of `Pooling.mode`. The first three names are from before version 5.
_MODES = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "cls": "cls", "mean": "mean", "max": "max"}
SMALLEST_NORM = 1e-12


@dataclasses.dataclass(frozen=True)
class Pooling:
    """Pools the vectors of each text's tokens into one vector per text.

    Attributes:
      mode: "cls", "mean" or "max". The tokens include [CLS] and [SEP].
      normalize: whether to scale the vector to length 1.
    """

    mode: str
    normalize: bool

    def __call__(self, values: np.ndarray, splits: np.ndarray) -> np.ndarray:
        """Pools the tokens of each text.

        Args:
          values: vectors of the tokens, float32 [T, L, H].

        Returns:
          Vectors of the texts, float32 [N, L, H].
        """
        starts = splits[:-1]
        if self.mode == "cls":
            pooled = values[starts]
        elif self.mode == "max":
            pooled = np.maximum.reduceat(values, starts, axis=0)
        else:
            lengths = np.diff(splits)[:, np.newaxis, np.newaxis].astype(np.float32)
            pooled = np.add.reduceat(values, starts, axis=0) / lengths
        if self.normalize:
            pooled = pooled / np.maximum(np.linalg.norm(pooled, axis=-1, keepdims=True), SMALLEST_NORM)
        return pooled


def is_stated(folder: str) -> bool:
    """Returns whether a checkpoint's folder says how sentence-transformers pools the checkpoint's vectors."""
    names = (sentence_transformers.MODULES, sentence_transformers.POOLING)
    return any(tf.io.gfile.exists(os.path.join(folder, name)) for name in names)


def pooling_of(folder: str) -> Pooling:
    """Reads how sentence-transformers pools a checkpoint's vectors."""
    normalize, pooling = is_normalized(folder), sentence_transformers.pooling_file(folder)
    if not tf.io.gfile.exists(pooling):
        raise InputError(f"--sentence_vectors: there is no {pooling}; give --pooling=cls, mean or max")
    return Pooling(_mode(read_json(pooling), pooling), normalize)


def is_normalized(folder: str) -> bool:
    """Returns whether sentence-transformers normalizes a checkpoint's vectors; false without `modules.json`."""
    kinds = sentence_transformers.read_modules(folder)
    if unknown := [kind for kind in kinds if kind not in sentence_transformers.KNOWN_MODULES]:
        path = os.path.join(folder, sentence_transformers.MODULES)
        raise InputError(f"{path}: names {unknown[0]}, which is not supported; give --pooling and --normalize instead")
    return "Normalize" in kinds


def check_texts(folder: str, do_lower_case: bool) -> None:
    """Refuses a checkpoint for which sentence-transformers changes each text before tokenization.

    Args:
      do_lower_case: whether the tokenizer lower-cases text. If so, texts that are lower-cased before give the same
        tokens.
    """
    path = os.path.join(folder, sentence_transformers.LENGTH)
    if not do_lower_case and tf.io.gfile.exists(path) and read_json(path).get("do_lower_case") is True:
        raise InputError(
            f"{path}: do_lower_case, which is not supported for a cased tokenizer; lower-case the texts yourself, and "
            "set the entry to false"
        )
    path = os.path.join(folder, sentence_transformers.PROMPTS)
    entries = read_json(path) if tf.io.gfile.exists(path) else {}
    name, prompts = entries.get("default_prompt_name"), entries.get("prompts")
    if isinstance(prompts, dict) and name is not None and prompts.get(name):
        raise InputError(
            f"{path}: default_prompt_name, which is not supported; write {prompts[name]!r} before each text yourself, "
            "and set the entry to null"
        )


def _mode(entries: dict, path: str) -> str:
    prefix = "pooling_mode_"
    modes = [name.removeprefix(prefix) for name, value in entries.items() if name.startswith(prefix) and value is True]
    if isinstance(entries.get("pooling_mode"), str):
        modes = [entries["pooling_mode"]]
    if len(modes) != 1 or modes[0] not in _MODES:
        found = " and ".join(modes) or "nothing"
        raise InputError(f"{path}: selects {found}; only cls, mean or max is supported; choose with --pooling")
    return _MODES[modes[0]]


def longest_sentence(folder: str, positions: int) -> int:
    """Returns the row length that sentence-transformers uses with a checkpoint.

    Args:
      folder: folder of the checkpoint. Since version 6 of sentence-transformers, only the folder's
        `tokenizer_config.json` states the length.
      positions: number of positions of the model. This is the maximum length, and the length if the folder does not
        state a length.
    """
    path = os.path.join(folder, sentence_transformers.LENGTH)
    stated = read_json(path).get("max_seq_length") if tf.io.gfile.exists(path) else None
    known = (stated, tokenizer_config.read(folder).get("model_max_length"))
    lengths = [length for length in known if isinstance(length, int) and length >= 3]
    return min([*lengths[:1], positions])
