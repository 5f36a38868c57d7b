"""We read the tokenizers that transformers wrote, transformers reads ours, and both give the same ids."""

import itertools
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
import transformers

from bert_tf.preprocessing import BertPreprocessor
from bert_tf.text import tokenizer_files
from bert_tf.tokenization import SPECIAL_TOKENS, BertTokenizer
from tests.migration import transformers_models

pytestmark = pytest.mark.torch


def written(folder, name="uncased", words=(), **rules) -> tuple[transformers.BertTokenizer, str]:
    """Lets transformers write a tokenizer; returns it, and its folder."""
    tokenizer = transformers_models.make_tokenizer(folder, name)
    if words:
        path = folder / "words.txt"
        path.write_text("".join(f"{token}\n" for token in [*SPECIAL_TOKENS, *words]), encoding="utf-8")
        tokenizer = transformers.BertTokenizer(str(path), **rules)
    tokenizer.save_pretrained(folder / "theirs")
    return tokenizer, str(folder / "theirs")


@pytest.mark.parametrize(("lower", "strip"), itertools.product([True, False], repeat=2))
def test_every_code_point_equals_transformers_tokens(tmp_path, lower, strip):
    """The Rust library behind transformers has an old Unicode table, so newer code points are left out."""
    known = [
        chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF
        and unicodedata.ucd_3_2_0.category(chr(c)) == unicodedata.category(chr(c)) not in ("Cn", "Co")
    ]  # fmt: skip
    forms = {f for c in known for text in (c, c.lower()) for f in text + unicodedata.normalize("NFD", text)}
    characters = sorted(c for c in forms if not c.isspace() and unicodedata.category(c) != "Cc")
    theirs, folder = written(
        tmp_path, words=[*characters, *(f"##{c}" for c in characters)], do_lower_case=lower, strip_accents=strip
    )
    ours = BertTokenizer(folder)
    assert (ours.do_lower_case, ours.strip_accents) == (lower, strip)
    # Rust lower-cases single characters, so a capital sigma never becomes final.
    texts = [f"a{c}b {c}e\u0301 A{c}. É" for c in known if c != "Σ"]
    assert ours.encode(texts).to_list() == theirs(texts, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", transformers_models.TOKENIZERS)
def test_tokens_and_offsets_equal_transformers(tmp_path, name):
    theirs, folder = written(tmp_path, name)
    texts = [*transformers_models.texts(500, 7), "", "[URL]", "[URL][URL]<e1>x<E1>X", "[URL"]
    ours = BertTokenizer(folder)
    found = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    ids, starts, ends = (part.to_list() for part in ours.encode_with_offsets(texts))
    assert ids == found["input_ids"] == ours.encode(texts).to_list()
    for text, first, last, expected in zip(texts, starts, ends, found["offset_mapping"], strict=True):
        assert list(zip(first, last, strict=True)) == expected, text


def bare(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the range without the white space that `lstrip` and `rstrip` add, and without what is dropped there."""
    if text[start].isspace() or text[end - 1].isspace():
        between = " \t\n\u00a0\u2003\u0301\u200b"
        start, end = end - len(text[start:end].lstrip(between)), start + len(text[start:end].rstrip(between))
    return start, end


@pytest.mark.parametrize("rules", [{}, {"do_lower_case": False}, {"strip_accents": False}], ids=repr)
def test_added_tokens_of_all_kinds_equal_theirs(tmp_path, rules):
    """Tokens with each combination of flags, in scripts with accents, cases, ideographs and dropped characters."""
    words = "Café|new york|Ἀθήνα|Ёлка|漢字|عَرَبي|हिन्दी|ǅ-x|co\u00advid|<E1>|[URL]|ÅB|İz".split("|")
    plain = sorted({c for w in words for f in (w, w.lower()) for c in unicodedata.normalize("NFKD", f) + f if c > " "})
    theirs, _ = written(tmp_path, words=[*plain, *(f"##{c}" for c in plain), "cafe", "york"], **rules)
    combinations = itertools.cycle(itertools.product([True, False], repeat=4))
    for word, (normalized, special, lstrip, rstrip) in zip(
        [*words, *(f"{w}{w}" for w in words)], combinations, strict=False
    ):
        flags = {"lstrip": lstrip, "rstrip": rstrip, "special": special}
        theirs.add_tokens([transformers.AddedToken(word, normalized=normalized, **flags)])
    theirs.save_pretrained(tmp_path / "added")
    rng, ours = random.Random(3), BertTokenizer(str(tmp_path / "added"))
    forms = [f(w) for w in words for f in (str, str.lower, str.upper, str.title)]
    forms += [unicodedata.normalize(form, word) for word in forms for form in ("NFD", "NFC")]
    joiners = [" ", "  ", "\t", "\u00a0", "\u2003 ", "", "", ".", "x", "\u0301", "\u200b", "漢", " \n"]
    texts = ["".join(rng.choice(forms) + rng.choice(joiners) for _ in range(rng.randint(1, 6))) for _ in range(3000)]
    texts = [text for text in texts if "Σ" not in text]
    found = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    assert sum(map(len, found["input_ids"])) > 10_000
    signature = [tf.TensorSpec([None], tf.string)]
    for encode in (ours.encode_with_offsets, tf.function(ours.encode_with_offsets, input_signature=signature)):
        ids, starts, ends = (part.to_list() for part in encode(tf.constant(texts)))
        for number, text in enumerate(texts):
            places = list(zip(starts[number], ends[number], strict=True))
            assert ids[number] == found["input_ids"][number], ascii(text)
            expected = [bare(text, *place) for place in found["offset_mapping"][number]]
            # The range of a token with `lstrip` contains spaces that transformers adds to ideographs.
            assert places == expected or "漢" in text, ascii(text)
    assert ours.encode(texts).to_list() == found["input_ids"]


@pytest.mark.parametrize("name", transformers_models.TOKENIZERS)
def test_tokenizers_go_back_to_transformers(tmp_path, name):
    theirs, folder = written(tmp_path, name)
    ours = BertTokenizer(folder)
    tokenizer_files.write(str(tmp_path / "ours"), ours.rules, 64, with_json=True)
    assert BertTokenizer(str(tmp_path / "ours")).rules == ours.rules
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    texts = transformers_models.texts(200, 8)
    assert again(texts)["input_ids"] == theirs(texts)["input_ids"]
    alone = tokenizers.Tokenizer.from_file(str(tmp_path / "ours/tokenizer.json"))  # as programs without Python read it
    for one, two in zip(texts, reversed(texts), strict=True):
        assert alone.encode(one).ids == theirs(one)["input_ids"]
        pair = theirs(one, two)
        assert alone.encode(one, two).ids == pair["input_ids"]
        if "token_type_ids" in pair:
            assert alone.encode(one, two).type_ids == pair["token_type_ids"]
    assert (again.pad_token_id, again.mask_token_id, again.unk_token_id) == (ours.pad_id, ours.mask_id, ours.unk_id)
    assert again.model_max_length == 64
    layer = BertPreprocessor(folder, 16)
    copy = BertPreprocessor.from_config(layer.get_config())
    np.testing.assert_array_equal(copy(tf.constant(texts))["input_ids"], layer(tf.constant(texts))["input_ids"])
    saved = tf.Module()
    saved.tokenizer, saved.encode = ours, tf.function(ours.encode, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(saved, str(tmp_path / "saved"))
    assert tf.saved_model.load(str(tmp_path / "saved")).encode(texts).to_list() == ours.encode(texts).to_list()
