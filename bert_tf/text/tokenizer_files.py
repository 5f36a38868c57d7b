"""Reads and writes the files that state the rules of a tokenizer.

The files are those of `learn_vocab`, google-research/bert (only a vocabulary), transformers, KerasHub, and TF Hub's
SavedModels.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.config import read_json, read_json_if_exists
from bert_tf.core import hub, storage
from bert_tf.core.errors import InputError, unreadable
from bert_tf.core.vocabulary_file import read_tokens, tokens_sha256
from bert_tf.text import tokenizer_rules
from bert_tf.text.tokenizer_rules import SPECIAL_TOKENS, AddedToken, TokenizerRules

VOCABULARY = "vocab.txt"
CONFIG = "tokenizer_config.json"
# transformers and KerasHub give different files the same name. Since version 5, transformers writes no vocab.txt.
JSON = "tokenizer.json"
_LEARNED = ".settings.json"
_ADDED, _SPECIAL_MAP = "added_tokens.json", "special_tokens_map.json"
_OF_KERAS_HUB = os.path.join("assets", "tokenizer")
_ASSETS = re.compile(r"(^|/)assets(/tokenizer)?$")
_VOCABULARIES = (VOCABULARY, os.path.join(_OF_KERAS_HUB, "vocabulary.txt"), JSON, os.path.join("assets", VOCABULARY))
_WEIGHTS = (".index", ".safetensors", ".h5")
# The beginnings of the names of KerasHub's classes in its files.
KERAS_LIBRARIES = ("keras_hub>", "keras_nlp>")
# The classes of transformers that tokenize as BERT does. The last two do what tokenizer.json states.
_CLASSES = re.compile(
    "(Bert|DistilBert|Electra|MobileBert|SqueezeBert|LayoutLM)Tokenizer(Fast)?|PreTrainedTokenizerFast|TokenizersBackend"
)
_SENTENCE_PIECE = "\N{LOWER ONE EIGHTH BLOCK}"
_HUB_LOWER_CASE = re.compile(r"(^|/)(do_lower_case|Variable:0)/")
_WRITTEN = {
    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
}  # fmt: skip


class _Stated(NamedTuple):
    """What the files of a folder state.

    Attributes:
      source: the file that states `do_lower_case`.
      do_lower_case, strip_accents: None if not stated.
      added: the added tokens by their ids.
      unsupported: a rule that `BertTokenizer` does not implement; "" if there is none.
    """

    source: str = ""
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    added: Mapping[int, AddedToken] = {}
    unsupported: str = ""


def read(
    path: str,
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
    default: TokenizerRules | None = None,
    strict: bool = True,
) -> TokenizerRules:
    """Reads the rules of a tokenizer.

    Args:
      path: a vocabulary, or a model's folder or checkpoint in it, or `hf://owner/model`.
      do_lower_case, strip_accents: values that replace those in the files; None for no replacement.
      default: rules for what neither an argument nor a file beside the vocabulary states.
      strict: whether to refuse rules that `BertTokenizer` does not implement.

    Raises:
      InputError: a file is damaged or states a rule that is not implemented; or see `load_vocabulary`.
    """
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
    if strict and (rule := stated.unsupported or _unsupported_tokens(tokens)):
        raise InputError(f"{stated.source or vocab_file}: {rule}, which is not supported; give another checkpoint")
    if do_lower_case is None and stated.do_lower_case is None and default:
        stated = stated._replace(do_lower_case=default.do_lower_case, source=default.source)
    strips = stated.strip_accents
    if strips is None and default and default.strip_accents != default.do_lower_case:
        strips = default.strip_accents
    known = [token for token in (default.added_tokens if default else ()) if token.content in tokens]
    return tokenizer_rules.of_tokens(
        tokens,
        stated.do_lower_case if do_lower_case is None else do_lower_case,
        strips if strip_accents is None else strip_accents,
        [stated.added[id_] for id_ in sorted(stated.added)] or known,
        vocab_file,
        "" if stated.do_lower_case is None else stated.source,
    )


def find_vocabulary(folder: str) -> str:
    """Returns the vocabulary in a model's folder; "" if there is none."""
    found = [path for name in _VOCABULARIES if tf.io.gfile.exists(path := os.path.join(folder, name))]
    assets = os.path.join(folder, "assets")
    if not found and tf.io.gfile.isdir(assets):  # TF Hub's models keep the name that the vocabulary had in training
        texts = [name for name in tf.io.gfile.listdir(assets) if name.endswith(".txt")]
        found = [os.path.join(assets, *texts)] if len(texts) == 1 else []
    return found[0] if found else ""


def read_config(folder: str) -> dict[str, Any]:
    """Reads the entries of a folder's `tokenizer_config.json`; {} if the file is missing."""
    return _entries(folder, CONFIG)


def write(folder: str, rules: TokenizerRules, max_length: int, known: Mapping[str, Any] = {}) -> None:
    """Writes a `vocab.txt`, and a `tokenizer_config.json` with which transformers tokenizes by the same rules.

    Args:
      max_length: maximum number of tokens in a row.
      known: entries to keep from the `tokenizer_config.json` of the checkpoint.
    """
    _write_vocabulary(os.path.join(folder, VOCABULARY), rules)
    entries = {"tokenizer_class": "BertTokenizer", **_WRITTEN, "model_max_length": max_length, **known}
    # transformers writes 10^30 if the maximum length is unknown.
    entries["model_max_length"] = min(entries["model_max_length"] or max_length, max_length)
    if not str(entries["tokenizer_class"]).startswith("Bert"):  # other classes need a tokenizer.json
        entries["tokenizer_class"] = "BertTokenizer"
    entries["do_lower_case"] = rules.do_lower_case
    entries["strip_accents"] = None if rules.strip_accents == rules.do_lower_case else rules.strip_accents
    entries |= {"added_tokens_decoder": _decoder(rules)} if rules.added_tokens else {}
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


def _decoder(rules: TokenizerRules) -> dict[str, dict[str, Any]]:
    """Returns the added tokens as transformers writes them, by id."""
    ids = {token: id_ for id_, token in enumerate(rules.vocabulary)}
    added = [*(AddedToken(token, normalized=False) for token in SPECIAL_TOKENS), *rules.added_tokens]
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word"), False)
    return {
        str(ids[token.content]): {
            "content": token.content, "normalized": token.normalized, "special": not token.normalized, **flags,
        }
        for token in sorted(added, key=lambda token: ids[token.content])
    }  # fmt: skip


def write_learned(vocab_file: str, text: str, rules: TokenizerRules, more: Mapping[str, Any]) -> None:
    """Writes a vocabulary of `learn_vocab`, and its rules with further entries to the file that is named after it.

    A folder may have several such vocabularies, so a `tokenizer_config.json` could not state their rules. Both files
    are on the disk before either gets its name.
    """
    ids = {token: id_ for id_, token in enumerate(rules.vocabulary)}
    added = {"added_tokens": [[ids[token.content], *token] for token in rules.added_tokens]}
    with storage.atomic_path(vocab_file) as temporary:
        storage.write_text(temporary, text)
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
        for read_statements in (_of_transformers, _of_keras_hub, _of_tf_hub):
            if stated := read_statements(place):
                return stated
    return _Stated()


def _entries(folder: str, name: str) -> dict[str, Any]:
    return read_json_if_exists(os.path.join(folder, name))


def _of_transformers(folder: str) -> _Stated | None:
    config, fast = _entries(folder, CONFIG), _entries(folder, JSON)
    fast = {} if "registered_name" in fast else fast
    slow = _entries(folder, _ADDED)
    if not (config or fast or slow):
        return None
    normalizer = fast.get("normalizer") or {}
    # A file of version 4 may state in one place what version 5 states in the other.
    lower, strip = (
        config[ours] if ours in config else normalizer.get(theirs)
        for ours, theirs in (("do_lower_case", "lowercase"), ("strip_accents", "strip_accents"))
    )
    source = os.path.join(folder, CONFIG if "do_lower_case" in config or not fast else JSON)
    added = {id_: token for id_, token in _added(folder, config, fast, slow) if token.content not in SPECIAL_TOKENS}
    return _Stated(source, lower, strip, added, next(_unsupported(config, fast), ""))


def _added(folder: str, config: Mapping, fast: Mapping, slow: Mapping) -> Iterator[tuple[int, AddedToken]]:
    special = _entries(folder, _SPECIAL_MAP).get("additional_special_tokens", ())
    contents = {token["content"] if isinstance(token, dict) else token for token in special}
    yield from ((id_, AddedToken(token, token not in contents)) for token, id_ in slow.items())
    listed = [*fast.get("added_tokens", ())]
    listed += [{"id": int(id_), **token} for id_, token in config.get("added_tokens_decoder", {}).items()]
    for token in listed:
        yield token["id"], AddedToken(token["content"], token.get("normalized", not token.get("special")))


def _unsupported(config: Mapping, fast: Mapping) -> Iterator[str]:
    """Yields the rules of transformers' files that `BertTokenizer` does not implement."""
    name = config.get("tokenizer_class") or "BertTokenizer"
    if not _CLASSES.fullmatch(name):
        yield f"tokenizer_class is {name}"
    if config.get("tokenize_chinese_chars") is False:
        yield "tokenize_chinese_chars is false"
    if config.get("do_basic_tokenize") is False:
        yield "do_basic_tokenize is false"
    if config.get("never_split"):
        yield "never_split is given"
    by_class = not name.startswith(("PreTrained", "TokenizersBackend")) and "do_lower_case" in config
    if fast and not by_class:  # BERT's classes replace the steps in the file by the values in tokenizer_config.json
        yield from _unsupported_steps(fast)
    prefix = fast.get("model", {}).get("continuing_subword_prefix", "##")
    if prefix != "##":
        yield f"continuing_subword_prefix is {prefix!r}"
    if word := next((token for token in fast.get("added_tokens", ()) if token.get("single_word")), None):
        yield f"single_word is true for the added token {word['content']}"


def _unsupported_steps(fast: Mapping) -> Iterator[str]:
    normalizer = fast.get("normalizer") or {"type": "none"}
    if normalizer["type"] != "BertNormalizer":
        steps = [step["type"] for step in normalizer.get("normalizers", ())]
        yield f"the normalizer is {normalizer['type']}" + (f" of {', '.join(steps)}" if steps else "")
    for rule in ("clean_text", "handle_chinese_chars"):
        if normalizer.get(rule) is False:
            yield f"{rule} is false"
    splitter = fast.get("pre_tokenizer", {"type": "BertPreTokenizer"}) or {"type": "none"}
    if splitter["type"] != "BertPreTokenizer":
        yield f"the pre-tokenizer is {splitter['type']}"


def _unsupported_tokens(tokens: list[str]) -> str:
    found = sum(token.startswith(_SENTENCE_PIECE) and token != _SENTENCE_PIECE for token in tokens)
    return f"{found} tokens begin with U+2581, as in a vocabulary of SentencePiece" if found > len(tokens) / 10 else ""


def _of_keras_hub(folder: str) -> _Stated | None:
    path = os.path.join(folder, JSON)
    entries = _entries(folder, JSON)
    if not str(entries.get("registered_name")).startswith(KERAS_LIBRARIES):
        return None
    known = entries["config"]
    return _Stated(path, known["lowercase"], known["strip_accents"])


def _of_tf_hub(folder: str) -> _Stated | None:
    """Reads the variable of TF Hub's models that tells whether the tokenizer lower-cases text."""
    path, prefix = os.path.join(folder, "saved_model.pb"), os.path.join(folder, "variables", "variables")
    if not tf.io.gfile.exists(path) or not tf.io.gfile.exists(f"{prefix}.index"):
        return None
    reader = tf.train.load_checkpoint(prefix)
    found = [name for name in reader.get_variable_to_shape_map() if _HUB_LOWER_CASE.search(name)]
    values = {bool(reader.get_tensor(name)) for name in found if reader.get_variable_to_dtype_map()[name] == tf.bool}
    return _Stated(path, values.pop()) if len(values) == 1 else None


def _read_vocabulary(path: str, stated: _Stated) -> list[str]:
    """Reads a vocabulary, and adds the added tokens."""
    is_json = os.path.basename(path) == JSON
    known = _json_vocabulary(path) if is_json else dict(enumerate(read_tokens(path)))
    tokens = known | {id_: token.content for id_, token in stated.added.items() if id_ not in known}
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
