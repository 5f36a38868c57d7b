"""The tokenizer against the original's Python tokenizer from tf-models-official."""

import json
import random
import re
import unicodedata

import pytest

from bert_tf.tokenization import BertTokenizer, load_vocabulary
from tests.bert_tf.original_tokenizer import (
    BOTH_CASES,
    assert_equal,
    assert_equal_to_the_original,
    is_comparable,
    originals,
    random_texts,
    write_vocabulary,
)
from tests.kit import refused


@pytest.fixture(scope="module", params=[9, pytest.param(3, marks=pytest.mark.slow)])
def code_points(request):
    """Those that are most often used, and of the others every ninth or third."""
    in_order = {True: [], False: []}  # Large blocks of similar characters, and the remaining ranges.
    for code_point in filter(is_comparable, range(0x110000)):
        if unicodedata.category(chr(code_point)) not in ("Cn", "Co"):
            name = unicodedata.name(chr(code_point), "")
            in_order[name.startswith(("CJK UNIFIED", "HANGUL SYLLABLE", "TANGUT"))].append(code_point)
    private = filter(is_comparable, (0xE000, 0xF8FF, 0xF0000, 0x10FFFD))
    return [*in_order[False][:3000], *in_order[False][3000 :: request.param], *in_order[True][::50], *private]


@pytest.mark.quick_cases("9-True")
@BOTH_CASES
@pytest.mark.core
def test_every_code_point_equals_original_in_contexts(tmp_path, code_points, lower):
    contexts = "{0} a{0}b {0}{0} A\u0301{0} {0}\u0301e .{0}! Σ{0} A{0}Σ aΣ{0}b A{0}Σ{0}. {0}aΣ"
    texts = [contexts.format(chr(c)) for c in code_points]
    assert_equal_to_the_original(tmp_path, texts, lower)


@pytest.mark.quick_cases("1-True")
@BOTH_CASES
@pytest.mark.parametrize("rounds", [1, pytest.param(15, marks=pytest.mark.real)])
@pytest.mark.core
def test_random_mixed_script_texts_equal_original(tmp_path, lower, rounds):
    rng = random.Random(20240)
    for _ in range(rounds):
        texts = random_texts(rng, 8000, 40) + random_texts(rng, 2000, 20, spoiled=True)
        assert_equal_to_the_original(tmp_path, texts, lower)


@pytest.mark.parametrize(
    "text", ["\u302e\u1b44", "a\u302e\u0301\u1b44", "a\u302e\u200d\u1b44", "a\u302e\u0901\u1b44", "\u302e中\u1b44",
             "\u302f\u302e\u1b44b\u302e\u1b44", "\u302e \u1b44", "\U0001d160\u1b44\u302e", "\u302e\u0f73\u1b44"]
)  # fmt: skip
@BOTH_CASES
def test_marks_are_ordered_as_the_original_orders_them(tmp_path, text, lower):
    assert_equal_to_the_original(tmp_path, [text, f"{text}{text}", f"{text} {text}", f"Σ{text}Σ\x00 {text}"], lower)


def test_capital_sigma_equals_the_original(tmp_path):
    around = ["", *" aΑΣ1'’\u0301.\u00ad\u200d中\x00:-", "'a", "a'"]
    texts = [f"{before}Σ{after}" for before in around for after in around]
    texts += [f"{before}Σ{middle}Σ{after}" for before in around for middle in around for after in around]
    assert_equal_to_the_original(tmp_path, texts, True)
    # A case by hand: sigma is final after a letter at the word's end, not at its start or before a letter.
    vocab_file = write_vocabulary(tmp_path, ["σ", "οδος", "##σ", "##ος", "'"])
    tokenizer = BertTokenizer(vocab_file)
    assert tokenizer.tokenize("ΟΔΟΣ Σ ΣΟΣ ΟΔΟΣ'") == ["οδος", "σ", "σ", "##ος", "οδος", "'"]


@pytest.mark.quick_cases("a-True", "\\u0130-True", "a\\u0301-False")
@BOTH_CASES
@pytest.mark.parametrize("unit", ["a", "é", "한", "𝒜", "İ", "a\u0301"])
def test_words_of_about_200_characters_are_equal(tmp_path, unit, lower):
    texts = []
    for length in (66, 67, 99, 100, 101, 199, 200, 201, 400):
        word = unit * length
        texts += [
            word, f" {word}", f"{word} ", f"  {word}  ", f".{word}!", f"b {word} b", f"{word}.{word},{word}",
            f"{word} {word}", f"{'b' * 201} {word} {'b' * 200}", f"中{word}中", f"{word}\x00", f"\u0301{word}", "b",
        ]  # fmt: skip
    assert_equal_to_the_original(tmp_path, texts, lower)


@pytest.mark.parametrize(
    "text",
    [
        b"a\xffb", b"ab\xc3", b"\xc3 ab", b"a\xe2\x28\xa1b", b"\xf0\x9f\x98a", b"\xed\xa0\x80a", b"\xc0\xafa",
        b"\xf4\x90\x80\x80a", b"a\x80\x80b", b"\xf8\x88\x80\x80\x80b", b"\xfe\xff", b"\xef\xbb\xbfab",
    ],
)  # fmt: skip
@pytest.mark.core
def test_invalid_utf_8_is_dropped_as_the_original_does(vocab_file, text):
    ours = BertTokenizer(vocab_file)
    assert ours.to_tokens(ours.encode([text]).values.numpy()) == originals(vocab_file, True).tokenize(text)


def test_a_lone_surrogate_is_dropped(vocab_file):
    tokenizer = BertTokenizer(vocab_file)
    assert tokenizer.tokenize("the\ud800 of") == ["the", "of"]
    assert tokenizer.encode_with_offsets(["the\ud800 of"])[1].to_list() == [[0, 4]]


@pytest.mark.parametrize("method", ["encode", "encode_with_offsets"])
def test_a_single_text_is_refused(vocab_file, method):
    with pytest.raises(ValueError, match="texts is a single text; give a list of texts"):
        getattr(BertTokenizer(vocab_file), method)("the man")


@pytest.mark.core
def test_ids_are_line_numbers(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("a\r\n[MASK]\r\n[PAD]\r\n##b\r\n[SEP]\r\n[UNK]\r\n[CLS]\r\né".encode())
    tokenizer = BertTokenizer(str(path), do_lower_case=False)
    assert tokenizer.vocabulary == ["a", "[MASK]", "[PAD]", "##b", "[SEP]", "[UNK]", "[CLS]", "é"]
    ids = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    assert ids == [2, 5, 6, 4, 1]
    assert tokenizer.encode(["ab é", "q"]).to_list() == [[0, 3, 7], [5]]


@BOTH_CASES
def test_white_space_tokens_keep_their_ids(tmp_path, lower):
    """The original strips each line, so U+2028 and U+2029 are the same empty token, which never matches."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "\u2028", "b", "\u2029", "##a", "\u3000", "", "É", "e"]
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    texts = ["a b ba", "a\u2028b\u2029a", "\u2028", "É ba\u3000é", "\U0010ffff6 a\x016", "\x016"]
    ours, theirs = BertTokenizer(str(path), lower), originals(str(path), lower)
    assert ours.encode(texts).to_list() == [theirs.convert_tokens_to_ids(theirs.tokenize(text)) for text in texts]
    assert ours.vocabulary == [token.strip() for token in tokens] and ours.vocabulary[9] == "##a"
    assert theirs.vocab["##a"] == 9


@pytest.mark.parametrize(
    "content, message",
    [
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", ": the special token [MASK] is missing"),
        (b"", ": contains none of [PAD], [UNK], [CLS], [SEP], [MASK], so it is not a vocabulary"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n", ", line 8: 'a' is already on line 6"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + b"x" * 257, ": token 5 has more than 256 bytes; give another"),
    ],
)
def test_unusable_vocabulary_error_names_the_file(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    refused(re.escape(f"{path}{message}"), BertTokenizer, str(path))


def test_a_folder_without_vocabulary_is_refused(tmp_path):
    refused(re.escape(f"{tmp_path}: the folder has no vocabulary"), load_vocabulary, str(tmp_path))


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
    for first in range(0, len(lines), 10_000):
        assert_equal(ours, theirs, lines[first : first + 10_000])


def test_added_tokens_are_found_beside_invalid_bytes(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[URL]": len(words)}))
    tokenizer = BertTokenizer(str(tmp_path))
    assert tokenizer.encode([b"the \xe9 [URL]"]).to_list() == [[5, 6]]
    # NUL, which does not end a text, also not beside another text with an added token
    assert tokenizer.encode(["the \0the", "the\0 [URL]\0 the"]).to_list() == [[5, 5], [5, 6, 5]]
