"""Reads and writes SentencePiece's Unigram models: `sentencepiece.bpe.model`, and transformers' `tokenizer.json`."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.text.tokenizer_rules import CLS, MASK, PAD, SEP, UNK, WORD_START, TokenizerRules, Unigram

MODEL = "sentencepiece.bpe.model"
SUFFIX = ".model"
# XLM-R's special tokens; the first four have the ids 0 to 3.
ROLES = {CLS: "<s>", PAD: "<pad>", SEP: "</s>", UNK: "<unk>", MASK: "<mask>"}
_UNIGRAM = 1  # the type of a Unigram model
# The first pieces of a file are <unk>, <s> and </s>, for which XLM-R has other ids.
_FIRST_PIECES = 3
_SPLIT = "WhitespaceSplit"
_META = {"type": "Metaspace", "replacement": WORD_START, "prepend_scheme": "always", "split": True}


def read(path: str) -> tuple[list[str], Unigram]:
    """Reads a model file with XLM-R's ids. Returns the tokens in the order of their ids, and the rest of the model."""
    from bert_tf.text.sentence_piece import model_class

    with tf.io.gfile.GFile(path, "rb") as file:
        model = model_class().FromString(file.read())
    if len(model.pieces) <= _FIRST_PIECES:
        raise InputError(f"{path}: is not a model of SentencePiece; copy the file again")
    if model.trainer_spec.model_type not in (0, _UNIGRAM):
        raise InputError(f"{path}: is not a Unigram model, and other models are not supported; give another checkpoint")
    *first, mask = ((token, 0.0) for token in ROLES.values())
    pieces = [*first, *((piece.piece, piece.score) for piece in model.pieces[_FIRST_PIECES:]), mask]
    return _of_pieces(pieces, base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode())


def of_json(fast: Mapping[str, Any], steps: Mapping[str, Any]) -> tuple[list[str], Unigram] | None:
    """Returns the tokens of a `tokenizer.json`, and the rest of the model; None if the model is not Unigram.
    `steps`: the entries that state the steps; {} for XLM-R's steps."""
    if (fast.get("model") or {}).get("type") != "Unigram":
        return None
    maps = [step.get("precompiled_charsmap") for step in _steps(fast, "normalizer")]
    has_split = not steps or _SPLIT in _types(_steps(steps, "pre_tokenizer"))
    return _of_pieces(fast["model"]["vocab"], next(filter(None, maps), ""), has_split)


def _of_pieces(pieces: Iterable, charsmap: str, splits_at_all_spaces: bool = True) -> tuple[list[str], Unigram]:
    tokens, scores = zip(*pieces, strict=True)
    if not all(token and isinstance(token, str) for token in tokens):
        raise ValueError("a piece is empty or not a string")
    return list(tokens), Unigram(tuple(map(float, scores)), charsmap, splits_at_all_spaces)


def _steps(fast: Mapping, name: str) -> list[Mapping]:
    step = fast.get(name) or {"normalizers": []}
    return step.get("normalizers", step.get("pretokenizers", [step]))


def _types(steps: Iterable[Mapping]) -> list[str]:
    return [step["type"] for step in steps]


def unsupported(fast: Mapping[str, Any]) -> Iterator[str]:
    """Yields the rules of a `tokenizer.json` that are not implemented. A converter of transformers writes other steps
    than XLM-R's tokenizer, which give the same tokens."""
    before, splits = (_steps(fast, name) for name in ("normalizer", "pre_tokenizer"))
    types = [each for each in _types(before) if each != "Precompiled"], _types(splits)
    if types not in (([], [_SPLIT, _META["type"]]), (["Strip", "Replace"], [_META["type"]])):
        yield f"the steps are {', '.join(_types(before + splits))}"
    elif any(splits[-1].get(key, value) != value for key, value in (_META | {"add_prefix_space": True}).items()):
        yield f"pre_tokenizer is {json.dumps(splits[-1])}"
    if fast["model"].get("byte_fallback"):
        yield "model.byte_fallback is true"


def steps(rules: TokenizerRules) -> dict[str, Any]:
    """Returns the steps of a `tokenizer.json`."""
    unigram = rules.unigram
    before = [{"type": "Precompiled", "precompiled_charsmap": unigram.charsmap}] if unigram.charsmap else []
    splits = [{"type": _SPLIT}] if unigram.splits_at_all_spaces else []
    before += [] if splits else [
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": WORD_START},
    ]  # fmt: skip
    return {
        "normalizer": {"type": "Sequence", "normalizers": before},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, _META]},
        "decoder": _META,
        "model": {
            "type": "Unigram", "unk_id": rules.id_of(UNK), "byte_fallback": False,
            "vocab": [*zip(rules.vocabulary, unigram.scores, strict=False)],
        },
    }  # fmt: skip
