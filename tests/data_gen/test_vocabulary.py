import collections
import itertools
import json
import logging

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.tokenization import BertTokenizer
from data_gen import vocabulary
from data_gen.settings import VocabularySettings
from tests.kit import refused

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SENNRICH = {"low": 5, "lower": 2, "newest": 6, "widest": 3}  # from the paper on byte-pair encoding for words


def test_merges_of_the_textbook_corpus_by_hand():
    # equal pairs are in the order of their characters, "##" before letters
    alphabet = ["##d", "##e", "##i", "##o", "##r", "##s", "##t", "##w", "l", "n", "w"]
    merges = [
        "##es",  # e-s 9 (newest 6, widest 3), s-t 9
        "##est",  # es-t 9
        "##ow",  # o-w 7, l-o 7
        "low",  # l-ow 7
        "##ew",  # e-w 6, w-est 6, n-e 6
        "##ewest",  # ew-est 6, n-ew 6
        "newest",  # n-ewest 6
        "##dest",  # d-est 3, i-d 3, w-i 3
        "##idest",  # i-dest 3, w-i 3
        "widest",
        "##er",  # e-r 2, low-e 2
        "lower",
    ]
    assert vocabulary.learn_tokens(SENNRICH, 1000) == alphabet + merges
    assert vocabulary.learn_tokens(SENNRICH, 15) == alphabet + merges[:4]


def learn_by_counting_anew(word_counts, size):
    """Byte-pair encoding by definition: count all pairs, merge the most frequent, repeat."""
    words = {word: [word[0], *(f"##{c}" for c in word[1:])] for word in word_counts}
    frequency = collections.Counter()
    for word, symbols in words.items():
        for symbol in symbols:
            frequency[symbol] += word_counts[word]
    alphabet = sorted(sorted(frequency, key=lambda s: (-frequency[s], s))[:size])
    words = {word: symbols for word, symbols in words.items() if set(symbols) <= set(alphabet)}
    tokens = list(alphabet)
    while len(tokens) < size:
        pairs = collections.Counter()
        for word, symbols in words.items():
            for pair in itertools.pairwise(symbols):
                pairs[pair] += word_counts[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merged = best[0] + best[1][2:]
        for word, symbols in words.items():
            result = []
            for symbol in symbols:
                # a merge may have changed the symbol before it, which then is no longer best[0]
                if result and (result[-1], symbol) == best:
                    result[-1] = merged
                else:
                    result.append(symbol)
            words[word] = result
        if merged not in tokens:
            tokens.append(merged)
    return tokens


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 5), min_size=1, max_size=12),
    st.integers(1, 40),
)
def test_merges_equal_a_recount(word_counts, size):
    assert vocabulary.learn_tokens(word_counts, size) == learn_by_counting_anew(word_counts, size)


def test_words_too_long_for_tokenizer_teach_no_merge():
    tokens = vocabulary.learn_tokens({"a" * 201: 100, "b" * 200: 1}, 20)
    assert "bb" in tokens or "##bb" in tokens
    assert not {"aa", "##aa"} & set(tokens)


def learn(tmp_path, texts, vocab_size, name="vocab.txt", **changes):
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    files = ",".join(str(tmp_path / f"{number}.txt") for number in range(len(texts)))
    output = tmp_path / name
    tokens = vocabulary.learn_vocabulary(
        VocabularySettings(input_file=files, output_file=str(output), vocab_size=vocab_size, **changes)
    )
    assert output.read_text(encoding="utf-8").splitlines() == tokens
    return tokens, output


@pytest.mark.quick_cases("150")
@pytest.mark.parametrize("size", [60, 100, 150])
def test_a_corpus_gives_the_size_asked_for(tmp_path, corpus_file, size):
    with open(corpus_file, encoding="utf-8") as file:
        text = file.read()
    tokens, output = learn(tmp_path, [text], size)
    assert len(tokens) == len(set(tokens)) == size
    assert tokens[:5] == SPECIAL_TOKENS
    tokenizer = BertTokenizer(str(output))
    ids = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    assert ids == [0, 1, 2, 3, 4]
    encoded = tokenizer.encode(text.split()).to_list()
    assert all(encoded) and tokenizer.unk_id not in {i for ids in encoded for i in ids}
    spelled = ["".join(p.removeprefix("##") for p in tokenizer.to_tokens(ids)) for ids in encoded]
    assert spelled == text.lower().split()


def test_case_and_accents_stay_where_asked(tmp_path):
    tokens, _ = learn(tmp_path, ["Été Été"], 12, do_lower_case=False)
    assert tokens[5:] == ["##t", "##é", "É", "##té", "Été"]


@pytest.mark.parametrize(
    ("text", "options"),
    [("für über jahre", {"strip_accents": False}),
     ("the of and Of", {"do_lower_case": False, "vocab_size": 400}),
     ("उपलब्ध नहीं コンテンツタイプ", {"do_lower_case": False})],
    ids=["accents", "few capitals", "no capitals"],
)  # fmt: skip
def test_a_tokenizer_treats_text_as_learning_did(tmp_path, text, options):
    """Also if another vocabulary is in the same folder."""
    rare = " ".join(map(chr, range(0x4E00, 0x4E00 + 130)))  # so that few tokens have capitals
    _, output = learn(tmp_path, [text, rare], **{"vocab_size": 1000} | options)
    _, other = learn(tmp_path, [text, rare], 1000, "other.txt")
    words = text.split()
    assert BertTokenizer(str(output)).tokenize(text) == words
    assert BertTokenizer(str(other)).tokenize(text) != words


def test_a_bare_vocabulary_decides_if_accents_stay(tmp_path):
    """But if a file states the rules of transformers, accents follow the case as they do there."""
    for text, stays in (("उपलब्ध नहीं", True), ("für über jahre", True), ("the of and", False)):
        tokens, _ = learn(tmp_path, [text], 1000, do_lower_case=False, overwrite=True)
        assert BertTokenizer(tokens).strip_accents is not stays and BertTokenizer(tokens).do_lower_case
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "strip_accents": None}))
    (tmp_path / "bare.txt").write_text("\n".join([*SPECIAL_TOKENS, "für", "über"]))
    assert BertTokenizer(str(tmp_path / "bare.txt")).strip_accents


def test_the_order_of_files_and_lines_does_not_matter(tmp_path, corpus_file):
    with open(corpus_file, encoding="utf-8") as file:
        lines = file.read().splitlines()
    _, first = learn(tmp_path, ["\n".join(lines[:100]), "\n".join(lines[100:])], 120, "first")
    _, second = learn(tmp_path, ["\n".join(lines[100:][::-1]), "\n".join(lines[:100])], 120, "second")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    "texts, options, message",
    [
        (["\n \x00\n"], {}, "contains no word to learn from; check the file and --input_format=lines"),
        ([], {}, "--input_file is empty"),
        (['{"text": "a"}\n\n{"text": "b"\n'], {"input_format": "jsonl"}, "0.txt, line 3: is not JSON"),
        (['{"text": "a"}'], {"input_format": "jsonl", "text_field": "body"}, "0.txt, line 1: no field 'body'"),
        (["<mediawiki>\n<page></wrong></page>"], {"input_format": "wikipedia"}, "0.txt: damaged XML"),
    ],
)
def test_a_corpus_that_teaches_nothing_is_refused(tmp_path, texts, options, message):
    refused(message, learn, tmp_path, texts, 100, **options)
    assert not (tmp_path / "vocab.txt").exists()


def test_reserved_slots_follow_special_tokens(tmp_path):
    tokens, _ = learn(tmp_path, ["ab ab abc"], 20, num_unused=7)
    assert tokens[:5] == SPECIAL_TOKENS
    assert tokens[5:12] == [f"[unused{i}]" for i in range(7)]
    assert tokens[12:] == ["##b", "##c", "a", "ab", "abc"]
    plain, _ = learn(tmp_path, ["ab ab abc"], 13, "plain.txt")
    assert plain == [*SPECIAL_TOKENS, *tokens[12:]]


@pytest.mark.parametrize(
    "text, size, learned, said",
    [
        ("ab ab c", 1000, "##b a c ab", ["9 tokens, fewer than --vocab_size=1000: every word of the corpus is"]),
        ("a b c d e f g h i a b c d", 10, "a b c d e", [
            "omitted 4 of 9 single-character tokens, of which the most frequent occurs 1 times",
            "give a larger --vocab_size"]),
    ],
)  # fmt: skip
def test_another_size_than_asked_for_is_explained(tmp_path, caplog, text, size, learned, said):
    with caplog.at_level(logging.INFO):
        tokens, _ = learn(tmp_path, [text], size)
    assert tokens == [*SPECIAL_TOKENS, *learned.split()]
    assert all(part in caplog.text for part in said)


def test_the_summary_tells_how_the_vocabulary_fits(tmp_path):
    text = "the of the café of of z"
    _, output = learn(tmp_path, [text], 12)
    tokenizer = BertTokenizer(str(output))
    tokens = [tokenizer.tokenize(word) for word in text.split()]
    summary = json.loads((tmp_path / "vocab.txt.settings.json").read_text())["summary"]
    unknown = tokens.count(["[UNK]"]) / 7
    assert 0 < unknown < 1
    assert summary["fit"] == pytest.approx({"tokens_per_word": sum(map(len, tokens)) / 7, "unknown_share": unknown})
    assert (summary["words"], summary["different_words"], summary["largest_count_error"]) == (7, 4, 0)


def test_dropped_words_are_told(tmp_path, caplog):
    text = " ".join(f"a{i}" for i in range(3000)) + " the" * 9
    learn(tmp_path, [text], 30, max_words=1000)
    summary = json.loads((tmp_path / "vocab.txt.settings.json").read_text())["summary"]
    assert summary["dropped_words"] == 2501 and summary["different_words"] == 500
    assert "more different words than --max_words=1000: dropped the rarest, 2501 words" in caplog.text
    assert "counts are too low by at most 1" in caplog.text


def test_replaces_existing_file_only_with_overwrite(tmp_path):
    first, output = learn(tmp_path, ["the of and the"], 20)
    refused(r"vocab.txt: exists; give another name, or --overwrite", learn, tmp_path, ["in is"], 20)
    assert output.read_text().split() == first
    assert learn(tmp_path, ["in is"], 20, overwrite=True)[0] != first


@pytest.mark.parametrize("written_to", ["vocab.txt.settings.json", "vocab.txt"])
def test_stopped_overwrite_never_mixes_vocabularies(tmp_path, monkeypatch, written_to):
    """Stops at the moment when one of the two files gets its name, as a kill or a full disk may do."""
    learn(tmp_path, ["the of and the"], 20)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("vocab*")}
    rename = tf.io.gfile.rename

    def stopping(source, target, overwrite=False):
        if target == str(tmp_path / written_to):
            raise OSError("stopped")
        rename(source, target, overwrite)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="stopped"):
        patch.setattr(tf.io.gfile, "rename", stopping)
        learn(tmp_path, ["In Is"], 20, overwrite=True, do_lower_case=False)
    if written_to == "vocab.txt":  # the new rules are there
        refused(
            "vocab.txt.settings.json: has the rules of another vocabulary than .*txt;",
            BertTokenizer,
            str(tmp_path / "vocab.txt"),
        )
    else:
        assert {path.name: path.read_bytes() for path in tmp_path.glob("vocab*")} == before
