"""Offsets of tokens against plain Python, the faster path of ASCII texts, and the operations of a served graph."""

import random
import unicodedata

import pytest
import tensorflow as tf
from official.nlp.tools import tokenization as original
from tensorflow.python.saved_model import loader_impl

from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.original_tokenizer import (
    BOTH_CASES,
    assert_equal,
    both_tokenizers,
    originals,
    random_texts,
    write_vocabulary,
)


def words_with_places(text: bytes, lower: bool):
    """Computes the original's words one character at a time; a character is (character, (start, end))."""
    basic, at, words = original.BasicTokenizer(do_lower_case=lower), 0, [[]]
    for character in text.decode("utf-8", "surrogateescape"):
        if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8
            continue
        start, at = at, at + 1
        if not basic._clean_text(character):
            continue
        if basic._clean_text(character).isspace() or character.isspace():
            words.append([])
        elif basic._is_chinese_char(ord(character)):
            words += [[(character, (start, at))], []]
        else:
            words[-1].append((character, (start, at)))
    for word in filter(None, words):
        yield from split_at_punctuation(without_accents(word) if lower else word)


def without_accents(word):
    lowered = "".join(c for c, _ in word).lower()
    kept = [c for c in unicodedata.normalize("NFD", lowered) if unicodedata.category(c) != "Mn"]
    places = [
        place
        for character, place in word
        for c in unicodedata.normalize("NFD", character.lower())
        if unicodedata.category(c) != "Mn"
    ]
    # exchanged marks take each other's positions, so positions stay in order
    return list(zip(kept, places, strict=True))


def split_at_punctuation(word):
    token = []
    for character, place in word:
        if original._is_punctuation(character) or character.isspace():
            yield from filter(None, [token, [] if character.isspace() else [(character, place)]])
            token = []
        else:
            token.append((character, place))
    yield from filter(None, [token])


def pieces_with_offsets(theirs, text: bytes, lower: bool):
    result = []
    for word in words_with_places(text, lower):
        tokens = theirs.wordpiece_tokenizer.tokenize("".join(c for c, _ in word))
        first = 0
        for number, token in enumerate(tokens):
            length = len(word) if token == "[UNK]" else len(token) - 2 * (number > 0)
            result.append((token, word[first][1][0], word[first + length - 1][1][1]))
            first += length
    return result


def ours_with_offsets(ours, texts):
    rows = (ragged.to_list() for ragged in ours.encode_with_offsets(texts))
    return [list(zip(ours.to_tokens(ids), starts, ends, strict=True)) for ids, starts, ends in zip(*rows, strict=True)]


@pytest.mark.slow
@BOTH_CASES
def test_offsets_of_random_texts_equal_plain_python(tmp_path, lower):
    rng = random.Random(7)
    texts = random_texts(rng, 6000, 30) + random_texts(rng, 3000, 15, spoiled=True)
    ours, theirs = both_tokenizers(tmp_path, texts, lower)
    for text, found in zip(texts, ours_with_offsets(ours, texts), strict=True):
        assert found == pieces_with_offsets(theirs, text, lower), text


@BOTH_CASES
def test_offsets_near_the_word_limit_are_right(tmp_path, lower):
    units = ["a", "é", "한", "𝒜", "İ", "a\u0301"]
    texts = [
        form.format(unit * length).encode()
        for unit in units
        for length in (66, 67, 100, 101, 199, 200, 201)
        for form in ("{0}", "é {0}. ab", "中{0}中 {0}", "{0}.{0}")
    ]
    ours, theirs = both_tokenizers(tmp_path, texts, lower)
    for text, found in zip(texts, ours_with_offsets(ours, texts), strict=True):
        assert found == pieces_with_offsets(theirs, text, lower), text


def test_offsets_by_hand(tmp_path):
    tokenizer = BertTokenizer(write_vocabulary(tmp_path, ["e", "##t", "e\u0301", ".", "\u1100", "##\u1161"]), True)
    texts = ["Ét. ? e\u0301\x00t", b"\xff\xc3e\xe2\x82t", "가", " " + "a" * 300 + "é"]
    assert ours_with_offsets(tokenizer, texts) == [
        [("e", 0, 1), ("##t", 1, 2), (".", 2, 3), ("[UNK]", 4, 5), ("e", 6, 7), ("##t", 9, 10)],
        [("e", 0, 1), ("##t", 1, 2)],
        [("\u1100", 0, 1), ("##\u1161", 0, 1)],
        [("[UNK]", 1, 302)],
    ]


@pytest.mark.quick_cases("False-True", "True-False")
@BOTH_CASES
@pytest.mark.parametrize("spoiled", [False, True])
@pytest.mark.core
def test_ids_are_the_same_with_and_without_offsets(tmp_path, lower, spoiled):
    texts = [b"", b"plain", *random_texts(random.Random(8), 2000, 30, spoiled)]
    ours, _ = both_tokenizers(tmp_path, texts, lower)
    ids, starts, ends = ours.encode_with_offsets(texts)
    assert ids.to_list() == ours.encode(texts).to_list()
    assert (ids.dtype, starts.dtype, ends.dtype) == (tf.int32, tf.int64, tf.int64)
    for some in ([], [b""], [b"plain"], [b"\xff"], ["é"], texts[:1], texts[5:9]):
        some = tf.constant(some, tf.string)
        assert [r.nrows().numpy() for r in ours.encode_with_offsets(some)] == [len(some)] * 3
        assert ours.encode_with_offsets(some)[0].to_list() == ours.encode(some).to_list()


def random_ascii_vocabulary(rng, alphabet):
    tokens = set()
    for _ in range(rng.randint(3, 60)):
        token = "".join(rng.choices(alphabet, k=rng.randint(1, 5))).strip()
        tokens |= {token, f"##{token}"} if rng.random() < 0.6 else {token}
    return sorted(tokens - {""})


@pytest.mark.parametrize("seed", range(6))
@BOTH_CASES
def test_ascii_texts_give_the_originals_pieces(tmp_path, lower, seed):
    rng = random.Random(seed)
    # tokens of several words, with punctuation inside words, or of marks alone can never match
    alphabet = ["ab#", "abAB.", "ab'#[]", "ab$ \t", "aM[]ASK#", "".join(map(chr, range(32, 127)))][seed]
    vocab_file = write_vocabulary(tmp_path, random_ascii_vocabulary(rng, alphabet))
    ours, theirs = BertTokenizer(vocab_file, lower), originals(vocab_file, lower)
    texts = [
        "".join(rng.choices(alphabet + " \t\n\rx"[: rng.randint(0, 5)], k=rng.randint(0, 30))) for _ in range(1000)
    ]
    texts += ["[MASK]", "a [SEP]b", "##a", "a\x0bb"]
    texts += [
        before + "ab"[seed % 2] * n + after for n in (199, 200, 201) for before in ("", ". ") for after in ("", "]")
    ]
    assert_equal(ours, theirs, texts)
    for text, found in zip(texts[:300], ours_with_offsets(ours, texts[:300]), strict=True):
        assert found == pieces_with_offsets(theirs, text.encode(), lower), text


@pytest.mark.slow
@pytest.mark.quick_cases("False")
@BOTH_CASES
def test_signatures_drop_invalid_utf_8_bytes(tmp_path, lower):
    rng = random.Random(9)
    texts = random_texts(rng, 2000, 15, spoiled=True)
    texts += [rng.randbytes(rng.randint(0, 12)) for _ in range(4000)]
    texts += [
        bytes([a, b]) + end for a in range(0xBF, 256) for b in range(0x78, 256, 9) for end in (b"", b"a", b"\x80 a")
    ]
    ours, theirs = both_tokenizers(tmp_path, texts, lower)
    assert_equal(ours, theirs, texts)
    reloaded = save_and_load(ours, tmp_path / "saved")
    expected = ours.encode_with_offsets(texts)
    served = reloaded.signatures["offsets"](texts=tf.constant(texts))
    assert served["ids"].numpy().tolist() == expected[0].values.numpy().tolist()
    assert served["starts"].numpy().tolist() == expected[1].values.numpy().tolist()
    assert served["ends"].numpy().tolist() == expected[2].values.numpy().tolist()
    served = reloaded.signatures["encode"](texts=tf.constant(texts))
    assert served["row_splits"].numpy().tolist() == expected[0].row_splits.numpy().tolist()


def save_and_load(tokenizer, folder):
    module = tf.Module()
    module.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def encode(texts):
        ids = tokenizer.encode(texts)
        return {"ids": ids.values, "row_splits": ids.row_splits}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def offsets(texts):
        ids, starts, ends = tokenizer.encode_with_offsets(texts)
        return {"ids": ids.values, "starts": starts.values, "ends": ends.values}

    tf.saved_model.save(module, str(folder), signatures={"encode": encode, "offsets": offsets})
    return tf.saved_model.load(str(folder))


@pytest.mark.slow
def test_a_served_graph_has_only_known_ops(vocab_file, tmp_path):
    save_and_load(BertTokenizer(vocab_file), tmp_path / "saved")
    saved = loader_impl.parse_saved_model(str(tmp_path / "saved"))
    graph = saved.meta_graphs[0].graph_def
    functions = {function.signature.name for function in graph.library.function}
    ops = {node.op for node in graph.node}
    ops |= {node.op for function in graph.library.function for node in function.node_def} - functions
    # these are TensorFlow's own operations
    unknown = [op for op in ops if not hasattr(tf.raw_ops, op)]
    # operations of tensorflow-text in the version that TF Serving 2.20.0 links
    assert unknown == ["FastWordpieceTokenizeWithOffsets"]
