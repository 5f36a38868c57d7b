"""Reads and writes the files that state the rules of a tokenizer.

The files are those of `learn_vocab`, google-research/bert (only a vocabulary), transformers, KerasHub, and TF Hub's
SavedModels.
"""

import functools
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.config import read_json, read_json_if_exists
from bert_tf.core import hub, storage
from bert_tf.core.errors import InputError, unreadable
from bert_tf.core.vocabulary_file import read_tokens, tokens_sha256
from bert_tf.text import sentence_piece_files, tokenizer_json, tokenizer_rules
from bert_tf.text.tokenizer_rules import (
    CLS,
    FORM,
    MASK,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    WORD_START,
    AddedToken,
    TokenizerRules,
    Unigram,
)  # fmt: skip

VOCABULARY = "vocab.txt"
CONFIG = "tokenizer_config.json"
# transformers and KerasHub give different files the same name. Since version 5, transformers writes no vocab.txt.
JSON = "tokenizer.json"
# The files that `write` writes: one of the first two, and the third.
WRITTEN = (VOCABULARY, JSON, CONFIG)
_LEARNED = ".settings.json"
_ADDED, _SPECIAL_MAP, _MODEL_CONFIG = "added_tokens.json", "special_tokens_map.json", "config.json"
_OF_KERAS_HUB = os.path.join("assets", "tokenizer")
_ASSETS = re.compile(r"(^|/)assets(/tokenizer)?$")
_VOCABULARIES = (
    VOCABULARY, os.path.join(_OF_KERAS_HUB, "vocabulary.txt"), JSON, sentence_piece_files.MODEL,
    *(os.path.join("assets", name) for name in (VOCABULARY, JSON)),
)  # fmt: skip
_WEIGHTS = (".index", ".safetensors", ".h5")
# The beginnings of the names of KerasHub's classes in its files.
KERAS_LIBRARIES = ("keras_hub>", "keras_nlp>")
# The classes of transformers that tokenize as BERT does, or as XLM-R. The last two do what tokenizer.json states.
_XLM_R, _MPNET = "XLMRobertaTokenizer", "MPNetTokenizer"
_CLASSES, _UNIGRAM_CLASSES = (
    re.compile(f"({names})(Fast)?|PreTrainedTokenizerFast|TokenizersBackend")
    for names in ("(Bert|DistilBert|Electra|MobileBert|SqueezeBert|LayoutLM|MPNet)Tokenizer", _XLM_R)
)
# The classes for which version 5 of transformers gives the model no token types by default.
_NO_TOKEN_TYPES = re.compile(f"TokenizersBackend|(DistilBertTokenizer|{_XLM_R}|{_MPNET})(Fast)?")
# Entries of `tokenizer_config.json` and steps in `tokenizer.json`, and the only value that `BertTokenizer` implements.
_IMPLEMENTED = {
    "tokenize_chinese_chars": True, "do_basic_tokenize": True, "never_split": [], "split_special_tokens": False,
    "padding_side": "right", "word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece", "unk_token": UNK,
    "auto_map": {}, "normalizer.type": "BertNormalizer", "normalizer.clean_text": True,
    "normalizer.handle_chinese_chars": True, "pre_tokenizer.type": "BertPreTokenizer", "model.type": "WordPiece",
    "model.unk_token": UNK, "model.continuing_subword_prefix": "##", "padding.direction": "Right",
}  # fmt: skip
_HUB_LOWER_CASE = re.compile(r"(^|/)(do_lower_case|Variable:0)/")
_ROLES = {"unk_token": UNK, "sep_token": SEP, "pad_token": PAD, "cls_token": CLS, "mask_token": MASK}


class _Stated(NamedTuple):
    """What the files of a folder state."""

    source: str = ""  # the file that states `do_lower_case`
    # `do_lower_case`, `strip_accents`: None if not stated
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    added: Mapping[int, AddedToken] = {}  # the added tokens by their ids
    more: Sequence[AddedToken] = ()  # tokens that are added tokens if the vocabulary contains them
    form: Mapping[str, Any] = {}  # the rules in `tokenizer_rules.FORM` that differ from the original's
    unsupported: str = ""  # a file, and a rule in it that `BertTokenizer` does not implement; "" if there is none
    tokens: Sequence[str] = ()  # the vocabulary of a Unigram model


def read(
    path: str,
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
    default: TokenizerRules | None = None,
    strict: bool = True,
) -> TokenizerRules:
    """Reads the rules of a tokenizer.
    `path`: a vocabulary, or a model's folder or checkpoint in it, or `hf://owner/model`.
    `do_lower_case`, `strip_accents`: values that replace those in the files; None for no replacement.
    `default`: rules for what neither an argument nor a file beside the vocabulary states.
    `strict`: whether to refuse rules that `BertTokenizer` does not implement.
    Raises InputError: a file is damaged or states a rule that is not implemented; or see `load_vocabulary`."""
    with unreadable(path):
        return _read(path, do_lower_case, strip_accents, default, strict)


def _read(
    path: str, do_lower_case: bool | None, strip_accents: bool | None, default: TokenizerRules | None, strict: bool
) -> TokenizerRules:
    folder = hub.download(path) if path.startswith(hub.SCHEME) else path
    if path.endswith(_WEIGHTS) or tf.io.gfile.exists(f"{path}.index"):
        folder = os.path.dirname(path)
    vocab_file = find_vocabulary(folder or ".") if not folder or tf.io.gfile.isdir(folder) else folder
    if not vocab_file:
        raise InputError(
            f"{path}: the folder has no vocabulary ({VOCABULARY} or {JSON}); give a vocabulary, or a model's folder"
        )
    stated = _stated(vocab_file)
    tokens = _read_vocabulary(vocab_file, stated)
    if strict and (rule := stated.unsupported or (not stated.tokens and _unsupported_tokens(vocab_file, tokens))):
        remedy = "give another checkpoint, or correct the file if the model was trained otherwise"
        raise InputError(f"{rule}, which is not supported; {remedy}")
    if do_lower_case is None and stated.do_lower_case is None and default:
        stated = stated._replace(do_lower_case=default.do_lower_case, source=default.source)
    strips = stated.strip_accents
    if strips is None and default and default.strip_accents != default.do_lower_case:
        strips = default.strip_accents
    added = [*(stated.added[id_] for id_ in sorted(stated.added)), *(t for t in stated.more if t.content in tokens)]
    if not added and default:
        added = [token for token in default.added_tokens if token.content in tokens]
    return tokenizer_rules.of_tokens(
        tokens,
        stated.do_lower_case if do_lower_case is None else do_lower_case,
        strips if strip_accents is None else strip_accents,
        added,
        vocab_file,
        "" if stated.do_lower_case is None else stated.source,
        **stated.form or (default.form if default else {}),
    )


def find_vocabulary(folder: str) -> str:
    """Returns the vocabulary in a model's folder; "" if there is none."""
    paths = [path for name in _VOCABULARIES if tf.io.gfile.exists(path := os.path.join(folder, name))]
    assets = os.path.join(folder, "assets")
    if not paths and tf.io.gfile.isdir(assets):  # TF Hub's models keep the name that the vocabulary had in training
        texts = [name for name in tf.io.gfile.listdir(assets) if name.endswith(".txt")]
        paths = [os.path.join(assets, *texts)] if len(texts) == 1 else []
    return paths[0] if paths else ""


def read_config(folder: str) -> dict[str, Any]:
    """Reads the entries of a folder's `tokenizer_config.json`; {} if the file is missing."""
    entries = _entries(folder, CONFIG)
    return ({"model_max_length": entries["max_len"]} if "max_len" in entries else {}) | entries


def write(
    folder: str, rules: TokenizerRules, max_length: int, kept: Mapping[str, Any] = {}, with_json: bool = False
) -> None:
    """Writes a `vocab.txt`, or a `tokenizer.json` for a Unigram model, and a `tokenizer_config.json` with which
    transformers tokenizes by the same rules.
    `max_length`: maximum number of tokens in a row.
    `kept`: entries to keep from the `tokenizer_config.json` of the checkpoint.
    `with_json`: whether to write a `tokenizer.json` beside a `vocab.txt` too."""
    if rules.unigram or with_json:
        storage.write_json(os.path.join(folder, JSON), tokenizer_json.content(rules))
    if not rules.unigram:
        _write_vocabulary(os.path.join(folder, VOCABULARY), rules)
    usual = "PreTrainedTokenizerFast" if rules.unigram else _MPNET if rules.separators == 2 else "BertTokenizer"
    entries = {"tokenizer_class": usual, **_ROLES, "model_max_length": max_length, **kept}
    # transformers writes 10^30 if the maximum length is unknown.
    entries["model_max_length"] = min(entries["model_max_length"] or max_length, max_length)
    if not str(entries["tokenizer_class"]).startswith("Bert"):  # other classes need a tokenizer.json
        entries["tokenizer_class"] = usual
    entries["do_lower_case"] = rules.do_lower_case
    entries["strip_accents"] = None if rules.strip_accents == rules.do_lower_case else rules.strip_accents
    if rules.special_tokens != SPECIAL_TOKENS:
        entries |= {key: rules.vocabulary[rules.id_of(role)] for key, role in _ROLES.items()}
    entries |= {"truncation_side": "left"} if rules.truncation_side == "left" else {}
    entries |= {} if rules.has_token_types else {"model_input_names": ["input_ids", "attention_mask"]}
    entries |= {"added_tokens_decoder": tokenizer_json.added_tokens(rules)} if rules.added_tokens else {}
    storage.write_json(os.path.join(folder, CONFIG), entries)


def is_whole(rules: TokenizerRules) -> bool:
    """Returns whether the vocabulary's file is a text file with all tokens, including the added tokens."""
    return rules.vocab_file.endswith(".txt") and tuple(read_tokens(rules.vocab_file)) == rules.vocabulary


def _write_vocabulary(target: str, rules: TokenizerRules) -> None:
    source = rules.vocab_file
    if is_whole(rules):
        if os.path.abspath(source) != os.path.abspath(target):
            with storage.atomic_path(target) as temporary:  # keeps white space that other programs read as tokens
                tf.io.gfile.copy(source, temporary)
        return
    storage.write_text(target, "".join(f"{token}\n" for token in rules.vocabulary))


def write_learned(vocab_file: str, text: str, rules: TokenizerRules, more: Mapping[str, Any]) -> None:
    """Writes a vocabulary of `learn_vocab`, and its rules with further entries to the file that is named after it. A
    folder may have several such vocabularies, so a `tokenizer_config.json` could not state their rules. Both files are
    on the disk before either gets its name."""
    ids = {token: id_ for id_, token in enumerate(rules.vocabulary)}
    added = {"added_tokens": [[ids[token.content], *token] for token in rules.added_tokens]}
    tf.io.gfile.makedirs(os.path.dirname(vocab_file) or os.curdir)
    with storage.atomic_path(vocab_file) as temporary:
        with tf.io.gfile.GFile(temporary, "w") as file:
            file.write(text)
        storage.write_json(vocab_file + _LEARNED, {**more, **rules.facts, **added})


def _of_learn_vocab(vocab_file: str) -> _Stated | None:
    path = vocab_file + _LEARNED
    if not (entries := read_json_if_exists(path)):
        return None
    if tokens_sha256(read_tokens(vocab_file)) != entries["vocab_sha256"]:
        raise InputError(
            f"{path}: has the rules of another vocabulary than {vocab_file}; run learn_vocab --overwrite again, or "
            "delete this file and give --do_lower_case and --strip_accents"
        )
    added = {id_: AddedToken(*token) for id_, *token in entries["added_tokens"]}
    return _Stated(path, entries["do_lower_case"], entries["strip_accents"], added)


def _stated(vocab_file: str) -> _Stated:
    if learned := _of_learn_vocab(vocab_file):
        return learned
    folder = os.path.dirname(vocab_file)
    # The rules of a preset of KerasHub and of a SavedModel are in the folder above the folder `assets`.
    for place in dict.fromkeys((folder, _ASSETS.sub("", folder))):
        for read_statements in (functools.partial(_of_transformers, vocab_file), _of_keras_hub, _of_tf_hub):
            if stated := read_statements(place):
                return stated
    return _Stated()


def _entries(folder: str, name: str) -> dict[str, Any]:
    return read_json_if_exists(os.path.join(folder, name))


def _of_transformers(vocab_file: str, folder: str) -> _Stated | None:
    config, fast, slow, special, model = (
        _entries(folder, name) for name in (CONFIG, JSON, _ADDED, _SPECIAL_MAP, _MODEL_CONFIG)
    )
    fast = {} if "registered_name" in fast else fast
    if "added_tokens_decoder" not in config:  # otherwise, transformers does not read the map
        config |= special
    is_model = vocab_file.endswith(sentence_piece_files.SUFFIX)
    if not (config or fast or slow or "tokenizer_class" in model or is_model):
        return None
    normalizer = fast.get("normalizer") or {}
    # A file of version 4 may state in one place what version 5 states in the other.
    lower, strip = (
        config[ours] if ours in config else normalizer.get(theirs)
        for ours, theirs in (("do_lower_case", "lowercase"), ("strip_accents", "strip_accents"))
    )
    source = os.path.join(folder, CONFIG if "do_lower_case" in config or not fast else JSON)
    name = config.get("tokenizer_class") or model.get("tokenizer_class") or "BertTokenizer"
    if name == "BertTokenizer" and (is_model or (fast.get("model") or {}).get("type") == "Unigram"):
        # Without a class, as in the files of XLM-R itself, the model's type decides.
        name = _XLM_R if model.get("model_type", "bert") in ("bert", "xlm-roberta") else model["model_type"]
    # These classes replace the steps in tokenizer.json by their own, or by those that tokenizer_config.json states.
    by_class = not name.startswith(("PreTrained", "TokenizersBackend")) and "do_lower_case" in config
    steps = {} if by_class or name.startswith((_XLM_R, _MPNET)) else fast
    pieces, unigram = sentence_piece_files.of_json(fast, steps) or (
        sentence_piece_files.read(vocab_file) if is_model and not fast else ((), None)
    )
    is_roberta = bool(unigram) or name.startswith(_MPNET)
    cls, sep, has_types, separators = _rows(steps.get("post_processor")) or ("", "", True, 2 if is_roberta else 1)
    usual = sentence_piece_files.ROLES if is_roberta else {role: role for role in SPECIAL_TOKENS}
    tokens = {role: _content(config.get(key)) or usual[role] for key, role in _ROLES.items()}
    unk = pieces[fast["model"]["unk_id"]] if fast and unigram else usual[UNK] if unigram else UNK
    tokens |= {UNK: unk, CLS: cls or tokens[CLS], SEP: sep or tokens[SEP]}
    names = tuple(tokens[role] for role in SPECIAL_TOKENS)
    side = config.get("truncation_side") or (fast.get("truncation") or {}).get("direction", "right")
    inputs = config.get("model_input_names", () if _NO_TOKEN_TYPES.fullmatch(name) else ("token_type_ids",))
    has_types = has_types and "token_type_ids" in inputs
    form = {"special_tokens": names, "truncation_side": side.lower(), "has_token_types": has_types}
    form |= {"separators": separators, "unigram": unigram}
    form = {key: value for key, value in form.items() if value != FORM[key]}
    lists = [config.get(key) or () for key in ("additional_special_tokens", "extra_special_tokens")]
    more = [_content(token) for each in lists for token in (each.values() if isinstance(each, Mapping) else each)]
    entries = [(id_, {"content": token, "special": token in more}) for token, id_ in slow.items()]
    entries += [(entry["id"], entry) for entry in fast.get("added_tokens", ())]
    entries += [(int(id_), entry) for id_, entry in config.get("added_tokens_decoder", {}).items()]
    added = {id_: _token(entry) for id_, entry in entries if unigram or entry["content"] not in names}
    if unigram:  # special tokens are found in the text
        special_ids = {pieces.index(name): name for name in names if name in pieces}
        added = {id_: AddedToken(name, normalized=False, special=True) for id_, name in special_ids.items()} | added
    listed = {*names, *(token.content for token in added.values())}
    unlisted = [_token({"content": token, "special": True}) for token in more if token not in listed]
    rules = _unsupported(name, config, special, steps, added.values(), unigram)
    unsupported = next((f"{os.path.join(folder, file)}: {rule}" for file, rule in rules), "")
    return _Stated(source, lower, strip, added, unlisted, form, unsupported, pieces)


def _token(entry: Mapping) -> AddedToken:
    flags = {name: bool(entry.get(name)) for name in AddedToken._fields[2:]}
    return AddedToken(entry["content"], entry.get("normalized", not entry.get("special")), **flags)


def _content(token: Any) -> Any:
    return token.get("content", token) if isinstance(token, Mapping) else token


def _rows(post: Mapping | None) -> tuple[str, str, bool, int] | None:
    """Returns a post-processor's [CLS] and [SEP], whether B has type 1, and the number of [SEP] before B; None for rows
    of another form."""
    if post and post["type"] == "BertProcessing":
        return post["cls"][0], post["sep"][0], True, 1
    single, pair = (
        [(part["id"], part["type_id"]) for piece in (post or {}).get(name, ()) for part in piece.values()]
        for name in ("single", "pair")
    )
    cls, sep = (single[0][0], single[-1][0]) if single else ("", "")
    if single == [(cls, 0), ("A", 0), (sep, 0)]:
        for b, more in itertools.product((0, 1), (0, 1)):
            if pair == [*single, *[(sep, 0)] * more, ("B", b), (sep, b)]:
                return cls, sep, b == 1, 1 + more
    return None


def _unsupported(
    name: str, config: Mapping, special: Mapping, steps: Mapping, added: Iterable[AddedToken], unigram: Unigram | None
) -> Iterator[tuple[str, str]]:
    """Yields the rules of transformers' files that `BertTokenizer` does not implement, each with its file."""
    if not (_UNIGRAM_CLASSES if unigram else _CLASSES).fullmatch(name):
        yield CONFIG if config.get("tokenizer_class") else _MODEL_CONFIG, f"tokenizer_class is {name}"
    parts = {"": config, **({"normalizer": None, **steps} if steps else {})}
    if unigram:
        yield from ((JSON, rule) for rule in (sentence_piece_files.unsupported(steps) if steps else ()))
        parts = {"": {**config, "unk_token": UNK}, "padding": steps.get("padding")}
    for path, value in _IMPLEMENTED.items():
        part, _, key = path.rpartition(".")
        entries = (parts[part] or {"type": None}) if part in parts else {}
        stated = _content(entries.get(key, value))
        if stated != value and (part or stated is not None):
            yield JSON if part else _SPECIAL_MAP if key in special else CONFIG, f"{path} is {json.dumps(stated)}"
    if "post_processor" in steps and not _rows(steps["post_processor"]):
        yield JSON, "post_processor makes other rows than [CLS] A [SEP] B [SEP]"
    if word := next((token.content for token in added if token.single_word), None):
        yield CONFIG if "added_tokens_decoder" in config else JSON, f"single_word is true for {word}"


def _unsupported_tokens(path: str, tokens: list[str]) -> str:
    pieces = sum(token.startswith(WORD_START) and token != WORD_START for token in tokens)
    rule = f"{path}: {pieces} tokens begin with U+2581, as in a vocabulary of SentencePiece"
    return rule if pieces > len(tokens) / 10 else ""


def _of_keras_hub(folder: str) -> _Stated | None:
    entries = _entries(folder, JSON)
    if not str(entries.get("registered_name")).startswith(KERAS_LIBRARIES):
        return None
    config = entries["config"]
    return _Stated(os.path.join(folder, JSON), config["lowercase"], config["strip_accents"])


def _of_tf_hub(folder: str) -> _Stated | None:
    """Reads the variable of TF Hub's models that tells whether the tokenizer lower-cases text."""
    path, prefix = os.path.join(folder, "saved_model.pb"), os.path.join(folder, "variables", "variables")
    if not tf.io.gfile.exists(path) or not tf.io.gfile.exists(f"{prefix}.index"):
        return None
    reader = tf.train.load_checkpoint(prefix)
    dtypes = reader.get_variable_to_dtype_map()
    names = [name for name, dtype in dtypes.items() if dtype == tf.bool and _HUB_LOWER_CASE.search(name)]
    values = {bool(reader.get_tensor(name)) for name in names}
    return _Stated(path, values.pop()) if len(values) == 1 else None


def _read_vocabulary(path: str, stated: _Stated) -> list[str]:
    """Reads a vocabulary, and adds the added tokens."""
    if stated.tokens:
        tokens = dict(enumerate(stated.tokens))
    else:
        tokens = _json_vocabulary(path) if os.path.basename(path) == JSON else dict(enumerate(read_tokens(path)))
    tokens = {id_: token.content for id_, token in stated.added.items()} | tokens
    for id_, token in stated.added.items():
        if tokens[id_] != token.content:
            raise InputError(
                f"{stated.source}: has the added token {token.content} with the id {id_}, but {path} has "
                f"{tokens[id_]!r} there; give the vocabulary of this tokenizer"
            )
    if sorted(tokens) != list(range(len(tokens))):
        missing = next(id_ for id_ in range(len(tokens) + 1) if id_ not in tokens)
        raise InputError(f"{path}: has no token with the id {missing}; give a {VOCABULARY}")
    return [tokens[id_] for id_ in range(len(tokens))]


def _json_vocabulary(path: str) -> dict[int, str]:
    model = read_json(path).get("model")
    ids = model.get("vocab") if isinstance(model, dict) and model.get("type") == "WordPiece" else None
    if not isinstance(ids, dict) or not ids:
        raise InputError(f"{path}: does not contain a BERT vocabulary; give a {VOCABULARY}")
    return {int(id_): token for token, id_ in ids.items()}
