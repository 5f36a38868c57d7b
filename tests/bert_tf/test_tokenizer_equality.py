"""A search for differences from the original: many strings, every code point, the corpus."""

import random
import unicodedata

import pytest

from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.original_tokenizer import (
    BOTH_CASES,
    assert_equal,
    assert_equal_to_the_original,
    both_tokenizers,
    is_comparable,
    originals,
    random_texts,
)

BATCH = 10_000


@pytest.mark.real
@BOTH_CASES
def test_150000_random_strings_equal_the_original(tmp_path, lower):
    rng = random.Random(f"many {lower}")
    ours, theirs = both_tokenizers(tmp_path, random_texts(rng, 10_000, 30), lower)
    for number in range(150_000 // BATCH):
        assert_equal(ours, theirs, random_texts(rng, BATCH, 8 + 16 * (number % 2), spoiled=number % 4 == 3))


@pytest.mark.real
@BOTH_CASES
def test_every_code_point_equals_the_original(tmp_path, lower):
    assigned = [chr(c) for c in filter(is_comparable, range(0x110000)) if unicodedata.category(chr(c)) != "Cn"]
    # a few of the 137,468 code points for private use, which all behave alike
    common = [c for c in assigned if unicodedata.category(c) != "Co"]
    texts = [f"{c} a{c}b {c}{c} a\u0301{c}" for c in common]
    texts += [f"a{c}b {c}{c} a\u0301{c}" for c in assigned if unicodedata.category(c) == "Co"][::50]
    for first in range(0, len(texts), 200_000):
        assert_equal_to_the_original(tmp_path, texts[first : first + 200_000], lower)


@pytest.mark.real
@BOTH_CASES
def test_the_corpus_equals_the_original(data_dir, lower):
    """The whole corpus with lower-casing, as most models read it, and a part without."""
    vocab_file = str(data_dir / "vocab/uncased-30522.txt")
    with open(data_dir / "corpus/english.txt", "rb") as file:
        lines = file.read().split(b"\n")
    assert len(lines) > 130_000
    ours, theirs = BertTokenizer(vocab_file, lower), originals(vocab_file, lower)
    lines = lines if lower else lines[::5]
    for first in range(0, len(lines), BATCH):
        assert_equal(ours, theirs, lines[first : first + BATCH])
