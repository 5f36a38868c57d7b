"""The original's Python tokenizer from tf-models-official, and texts for comparisons with it."""

import functools
import random
import unicodedata

import pytest
from official.nlp.tools import tokenization as original

from benchmarks import build_unicode_table
from bert_tf.tokenization import BertTokenizer

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BOTH_CASES = pytest.mark.parametrize("lower", [True, False])
# Tokens of several characters, so that the longest match matters. "x" never continues a word, so such words fail.
LONG_PIECES = ["ab", "abc", "##ab", "##bcd", "##cda", "aabb", "##dd", "Ab", "##BC", "x", "xa"]
# Marks that canonical ordering moves, marks that it exchanges with these, and marks at which it stops.
ORDERED_MARKS = "\u302e\u302f\u1b44\u1baa\ua9c0\U00016ff0\U0001d165\U0001d16d\u1715"
ALPHABETS = [
    "abcdABCD",
    "abcdx",
    "éÀßıİǅŉﬀｆＡ",
    "αβΓΣσςΆ",
    "ДжЁйѝ",
    "한국어ㅎ가\u1100\u1161\u11a8",
    "中文日本々\uf900",
    "ابجدہـ\u064b\u0651",
    "אבגּש",
    "हिन्दीकि\u09cb\u0bca",
    "ไทยกำ",
    "𝒜𐐀😀🏳🤦🏽\u200d\ufe0f",
    " \t\n\r\u00a0\u3000\u2028\u2029\u1680\u2003",
    "\x00\x01\x0b\x0c\x1c\x1f\x7f\x85\ufffd\u200b\u200d\u00ad\ufeff",
    "\u0301\u0300\u0345\u0323\u20dd",
    ".,!?'’\"-_$^`~§¿。、「」…≠",
    "0123٣²½",
    ORDERED_MARKS,
    ORDERED_MARKS + "\u0301\u0323\u0901\U0001d15e\U0001d160\u200d\x00a",
    "\ue000\uf8ff\U000f0000",
    "ΣσΑ1'.\u00ad\u0301 :",
    "[MASK]#",
]


def is_comparable(code_point):
    """Whether this Python's Unicode version treats a code point like Unicode 14.0, the table's version."""
    if 0xD800 <= code_point <= 0xDFFF:
        return False
    if unicodedata.unidata_version == build_unicode_table.UNICODE_VERSION:
        return True
    character = chr(code_point)
    return unicodedata.ucd_3_2_0.category(character) == unicodedata.category(character) != "Cn"


def write_vocabulary(folder, tokens):
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in dict.fromkeys([*SPECIAL_TOKENS, *tokens])), encoding="utf-8")
    return str(path)


def originals(vocab_file, lower):
    tokenizer = original.FullTokenizer(vocab_file, do_lower_case=lower)
    # the original's limit; tf-models-official doubled it
    tokenizer.wordpiece_tokenizer.max_input_chars_per_word = 200
    # cached: its time is quadratic in a word's length, and words repeat in the texts
    tokenizer.wordpiece_tokenizer.tokenize = functools.cache(tokenizer.wordpiece_tokenizer.tokenize)
    return tokenizer


def both_tokenizers(folder, texts, lower):
    """Returns both tokenizers with a vocabulary of all characters in the texts except "x"."""
    basic = original.BasicTokenizer(do_lower_case=lower)
    characters = sorted({c for text in texts for word in basic.tokenize(text) for c in word} - {"x"})
    vocab_file = write_vocabulary(folder, [*characters, *(f"##{c}" for c in characters), *LONG_PIECES])
    return BertTokenizer(vocab_file, lower), originals(vocab_file, lower)


def assert_equal_to_the_original(folder, texts, lower):
    assert_equal(*both_tokenizers(folder, texts, lower), texts)


def assert_equal(ours, theirs, texts):
    encoded = ours.encode(texts).to_list()
    assert len(encoded) == len(texts)
    for text, ids in zip(texts, encoded, strict=True):
        tokens = theirs.tokenize(text)
        assert ours.to_tokens(ids) == tokens, f"{text!a}"


def random_texts(rng: random.Random, count: int, longest: int, spoiled: bool = False) -> list[bytes]:
    """Yields texts of one to four alphabets each; in `spoiled` texts, random bytes are removed, doubled or inserted."""
    alphabets = ["".join(filter(lambda c: is_comparable(ord(c)), alphabet)) for alphabet in ALPHABETS]
    texts = []
    for _ in range(count):
        alphabet = "".join(rng.sample([a for a in alphabets if a], rng.randint(1, 4)))
        text = "".join(rng.choices(alphabet, k=rng.randint(0, longest))).encode()
        for _ in range(rng.randint(1, 3) if spoiled else 0):
            at = rng.randint(0, len(text))
            text = rng.choice(
                [text[:at] + text[at + 1 :], text[:at] + bytes([rng.randint(128, 255)]) + text[at:], text[at:] + text]
            )
        texts.append(text)
    return texts
