"""SentencePiece's Unigram tokenizer as TensorFlow operations, with the ids of transformers' fast tokenizer.

The tokenizer normalizes a text with a precompiled character map, splits it at white space, writes U+2581 before each
word, and cuts each word into the pieces with the highest sum of scores.

Letters: N characters of all texts, C clusters, W words, P pairs.
"""

import base64
import functools
import hashlib
import itertools
import unicodedata
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer as _operations

from bert_tf.text.tokenizer_rules import WORD_START, Unigram
from bert_tf.text.unicode_table import DROPPED, EXPANDS, NUM_CODE_POINTS, SPACE, Table, entry
from bert_tf.text.word_splitting import TOO_LONG, byte_lengths

_START_BYTES = len(WORD_START.encode())
_SCALE = 1 << 15
# Types of pieces.
NORMAL, UNKNOWN, CONTROL = 1, 2, 3
# The map's entry for a cluster (a character and its marks) is used only if the cluster has fewer bytes.
_CLUSTER_BYTES = 6
# A character map without entries. Without a map, the operation logs a message.
_NO_ENTRIES = (1024).to_bytes(4, "little") + bytes(1024) + b"\0"
# The roles of a character in a cluster, as bits.
_MAPPED, _MARK, _CONTROL, _PREPENDED = 1, 2, 4, 8
_PREPENDED_SIGNS = [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2]  # Arabic and Syriac
# The messages of SentencePiece's model files, with the fields that are used: name, number, type.
_MESSAGES = {
    "Piece": (("piece", 1, "STRING"), ("score", 2, "FLOAT"), ("type", 3, "INT32")),
    "Trainer": (("model_type", 3, "INT32"),),
    "Normalizer": (
        ("precompiled_charsmap", 2, "BYTES"), ("add_dummy_prefix", 3, "BOOL"), ("remove_extra_whitespaces", 4, "BOOL"),
        ("escape_whitespaces", 5, "BOOL"),
    ),
    "Model": (("pieces", 1, "Piece"), ("trainer_spec", 2, "Trainer"), ("normalizer_spec", 3, "Normalizer")),
}  # fmt: skip


@functools.cache
def model_class() -> type:
    """Returns the class of the message in SentencePiece's model files."""
    file = descriptor_pb2.FileDescriptorProto(name="sentence_piece.proto", package="bert_tf")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            field = described.field.add(name=name, number=number, label=3 if name == "pieces" else 1)
            field.type = getattr(field, f"TYPE_{kind}", field.TYPE_MESSAGE)
            if kind in _MESSAGES:
                field.type_name = f".bert_tf.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bert_tf.Model"))


class PieceCutter(tf.Module):
    """Cuts words into pieces.
    `pieces`: the piece of each id. A word that consists of TOO_LONG and an id becomes this id.
    `scores`: the score of each id; ids at the end may lack it.
    `controls`: the ids that never occur in words."""

    def __init__(self, pieces: Sequence[str], scores: Sequence[float], unk_id: int, controls: Container[int]):
        super().__init__()
        model = model_class()()
        # The operation adds scores in float32, transformers in float64. Sums of these rounded scores are exact.
        scores = (np.round(np.array(scores) * _SCALE) / _SCALE).tolist()
        for id_, (piece, score) in enumerate(itertools.zip_longest(pieces, scores, fillvalue=0.0)):
            kind = UNKNOWN if id_ == unk_id else CONTROL if id_ in controls else NORMAL
            model.pieces.add(piece=WORD_START * piece.startswith(chr(TOO_LONG)) + piece, score=score, type=kind)
        spec = model.normalizer_spec
        spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = False
        spec.precompiled_charsmap = _NO_ENTRIES
        content = model.SerializeToString()
        name = hashlib.sha256(content).hexdigest()

        def cut(words: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # The name makes a process load the model only once. `clear_session` of Keras would delete the model of
            # tensorflow-text's class, and objects that use that class can be saved only if they track it.
            resource = _operations.sentencepiece_op(model=content, shared_name=name)
            return _operations.sentencepiece_tokenize_with_offsets_op(
                resource, words, nbest_size=0, alpha=1.0, add_bos=False, add_eos=False, reverse=False, out_type=tf.int32
            )

        # All calls in a graph share the function, which contains the model.
        self._cut = tf.function(cut, [tf.TensorSpec([None], tf.string)], autograph=False)

    def tokenize_with_offsets(self, words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Cuts normalized words, string [W]. Returns ids, int32 [W, (tokens)], and the tokens' ranges of bytes in the
        words. A piece that is only U+2581 has the range of the first byte, as in transformers."""
        has_start = tf.strings.regex_full_match(words, rf"{WORD_START}\C*")
        ids, splits, starts, ends = self._cut(tf.where(has_start, words, tf.strings.join([WORD_START, words])))
        ids = tf.RaggedTensor.from_row_splits(ids, splits, validate=False)
        added = tf.gather(tf.where(has_start, tf.constant(0, starts.dtype), _START_BYTES), ids.value_rowids())
        return ids, *map(ids.with_values, (tf.maximum(starts - added, 0), tf.maximum(ends - added, 1)))


class Composer(tf.Module):
    """Applies the map's entries for several characters.

    transformers applies the map to each cluster: a cluster of fewer than six bytes becomes the entry of its shortest
    prefix that the map contains, and loses its other marks. Longer clusters are mapped by character. SentencePiece
    itself applies the longest entry at each place."""

    def __init__(self, roles: np.ndarray, pairs: np.ndarray, entries: np.ndarray):
        super().__init__()
        self._roles, self._pairs, self._entries = map(tf.constant, (roles, pairs, entries))

    def __call__(self, entries: tf.Tensor, sources: tf.Tensor) -> tf.Tensor:
        """Returns the entries of characters, int32 [N], with composed clusters; `sources` are the code points."""
        roles = tf.cast(tf.gather(self._roles, sources), tf.int32)
        return tf.cond(
            tf.reduce_any(roles & _MARK > 0), lambda: self._compose(entries, sources, roles), lambda: entries
        )

    def _compose(self, entries, sources, roles):
        before = tf.concat([[_CONTROL], roles[:-1]], 0)
        begins = ((roles & _MARK == 0) & (before & _PREPENDED == 0)) | (before & _CONTROL > 0)
        owner, first = tf.cumsum(tf.cast(begins, tf.int32)) - 1, tf.where(begins)[:, 0]  # [N], [C]
        is_short = tf.math.segment_sum(byte_lengths(sources), owner) < _CLUSTER_BYTES
        following = tf.gather(tf.concat([sources, [0]], 0), first + 1)
        pair = tf.cast(tf.gather(sources, first), tf.int64) * NUM_CODE_POINTS + tf.cast(following, tf.int64)
        place = tf.searchsorted(self._pairs, pair)
        is_own = tf.gather(roles, first) & (_MAPPED | _CONTROL) == _MAPPED
        is_pair = is_short & ~is_own & (tf.gather(self._pairs, place) == pair)
        is_mapped = is_pair | (is_short & is_own)
        entries = tf.where(tf.gather(is_mapped, owner) & ~begins, entry(DROPPED), entries)
        composed = tf.where(is_pair, tf.gather(self._entries, place), tf.gather(entries, first))
        return tf.tensor_scatter_nd_update(entries, first[:, tf.newaxis], composed)


def splitting(unigram: Unigram) -> dict[str, Any]:
    """Returns the arguments with which `WordSplitter` normalizes and splits texts."""
    entries = np.arange(NUM_CODE_POINTS, dtype=np.int32)
    entries[_SPACES] = entry(SPACE)
    if not unigram.splits_at_all_spaces:
        entries[_NEXT_LINE] = _NEXT_LINE
    roles, plain, expansions = _roles().copy(), entries.copy(), []

    def entry_of(text: str) -> int:
        values = [int(plain[ord(character)]) for character in text]
        if len(values) == 1:
            return values[0]
        expansions.append(values)
        return entry(EXPANDS, len(expansions) - 1) if values else entry(DROPPED)

    keys = _keys(base64.b64decode(unigram.charsmap)) if unigram.charsmap else {}
    pairs = {}
    for key, text in keys.items():
        if len(key) == 1:
            entries[ord(key)] = entry_of(text)
            roles[ord(key)] |= _MAPPED
        elif len(key) == 2 and len(key.encode()) < _CLUSTER_BYTES:
            pairs[ord(key[0]) * NUM_CODE_POINTS + ord(key[1])] = entry_of(text)
    entries[1] = 1  # `AddedTokenFinder` replaces U+0000, which is an unknown character in transformers, by U+0001
    widest = max(map(len, expansions), default=1)
    rows = [values + [entry(DROPPED)] * (widest - len(values)) for values in expansions or [[]]]
    order = [*sorted(pairs), np.iinfo(np.int64).max]
    composer = Composer(roles, np.array(order, np.int64), np.array([pairs.get(key, 0) for key in order], np.int32))
    table = Table(entries, np.array(rows, np.int32), *[np.zeros(0, np.int32)] * 2)
    end = "" if unigram.splits_at_all_spaces else rf"(\x{{{_NEXT_LINE:x}}}[\s\p{{Z}}]*)+$"
    return {"table": table, "compose": composer, "longest": np.iinfo(np.int64).max, "end": end}


# The white space at which transformers splits words; unlike in Python, without U+001C to U+001F.
_SPACES = [c for c in range(0x3001) if chr(c).isspace() and c not in range(0x1C, 0x20)]
_NEXT_LINE = 0x85


@functools.cache
def _roles() -> np.ndarray:
    """Returns the role of each code point in a cluster of characters, uint8 [0x110000]."""
    categories = {"Mn": _MARK, "Me": _MARK, "Mc": _MARK, "Cc": _CONTROL, "Cf": _CONTROL, "Zl": _CONTROL, "Zp": _CONTROL}
    roles = np.array([categories.get(unicodedata.category(chr(c)), 0) for c in range(NUM_CODE_POINTS)], np.uint8)
    roles[[0x200C, 0x200D, 0xE33, 0xEB3, 0xFF9E, 0xFF9F]] = _MARK  # joiners, vowels of Thai and Lao, and kana marks
    roles[_PREPENDED_SIGNS] = _PREPENDED
    return roles


def _keys(charsmap: bytes) -> dict[str, str]:
    """Reads the entries with keys of fewer than six bytes from a precompiled character map, which is a double-array
    trie (Darts) and NUL-terminated values."""
    size = int.from_bytes(charsmap[:4], "little")
    units, values = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64), charsmap[4 + size :]
    offsets = units >> 10 << ((units & 1 << 9) >> 6)
    labels, nodes, prefixes, keys = np.arange(1, 256), offsets[:1], [b""], {}
    for _ in range(_CLUSTER_BYTES - 1):
        children = nodes[:, np.newaxis] ^ labels
        is_child = children < len(units)
        is_child &= units[np.where(is_child, children, 0)] & (1 << 31 | 0xFF) == labels
        prefixes = [prefixes[row] + bytes([column + 1]) for row, column in zip(*np.nonzero(is_child), strict=True)]
        children = children[is_child]
        nodes = children ^ offsets[children]
        if len(nodes) > NUM_CODE_POINTS or 4 * len(units) != size or not size:
            raise ValueError("the precompiled character map is damaged")
        for number in np.flatnonzero(units[children] & 1 << 8):
            start = int(units[nodes[number]] & 0x7FFFFFFF)
            keys[prefixes[number].decode()] = values[start : values.index(0, start)].decode()
    return keys
