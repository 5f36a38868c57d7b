import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.tokenization import BertTokenizer
from data_gen import vocabulary
from data_gen.settings import VocabularySettings
from data_gen.vocabulary_extension import extend_tokens
from tests.kit import refused

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = list("abcdxy")
SPELLING = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]


def cut(word, vocabulary):
    """The original's greedy longest match by definition."""
    tokens, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            token = ("##" if start else "") + word[start:end]
            if token in vocabulary:
                break
        else:
            return ["[UNK]"]
        tokens.append(token)
        start = end
    return tokens


def cost(word_counts, vocabulary):
    return sum(count * len(cut(word, vocabulary)) for word, count in word_counts.items())


@pytest.mark.parametrize(
    "word_counts, wanted, expected",
    [
        # the whole words "abcd" and "abxy" save 3 tokens each time; their common "ab" saves only 1
        ({"abcd": 10, "abxy": 5}, 2, {"abcd", "abxy"}),
        ({"abcd": 10, "abxy": 5}, 1, {"abcd"}),
        # 30 times "##cd" against 10 times 2 to 3 for each whole word
        ({"acd": 10, "bcd": 10, "xcd": 10, "ycd": 10}, 1, {"##cd"}),
    ],
)
def test_pieces_that_save_most_by_hand(word_counts, wanted, expected):
    assert set(extend_tokens(SPELLING, word_counts, wanted)) == expected


words_of = st.dictionaries(st.text("abcdé", min_size=1, max_size=8), st.integers(1, 9), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, derandomize=True)
@given(words_of, st.integers(1, 12))
def test_every_added_token_is_new_and_used(word_counts, wanted):
    added = extend_tokens(SPELLING, word_counts, wanted)
    assert len(added) == len(set(added)) <= wanted
    assert not set(added) & set(SPELLING)
    extended = {*SPELLING, *added}
    assert set(added) <= {token for word in word_counts for token in cut(word, extended)}
    known = {word: count for word, count in word_counts.items() if "é" not in word}
    if added and len(known) == len(word_counts):
        assert cost(known, extended) < cost(known, set(SPELLING))
    if len(added) < wanted:  # then no candidate saves tokens
        assert all(len(cut(word, extended)) == 1 for word in known)
    assert extend_tokens(SPELLING, dict(reversed(word_counts.items())), wanted) == added


def test_a_missing_character_is_added_if_frequent():
    common = {"abcd": 50, "né": 20, "éb": 1, "n": 30}
    added = extend_tokens(SPELLING, common, 4)
    assert {"abcd", "n"} <= set(added)
    assert "[UNK]" not in cut("né", {*SPELLING, *added})
    # in one word of many, it does not replace a candidate that saves more
    assert extend_tokens(SPELLING, {"abcd": 50, "é": 1}, 1) == ["abcd"]


def extend(tmp_path, text, vocab, **changes):
    (tmp_path / "text").write_text(text, encoding="utf-8")
    (tmp_path / "old.txt").write_bytes(vocab if isinstance(vocab, bytes) else "".join(f"{p}\n" for p in vocab).encode())
    flags = {"input_file": tmp_path / "text", "output_file": tmp_path / "new.txt", "extend_vocab": tmp_path / "old.txt"}
    tokens = vocabulary.learn_vocabulary(
        VocabularySettings(**{name: str(path) for name, path in flags.items()} | changes)
    )
    return tokens, tmp_path / "new.txt"


TEXT = "abcd abxy abcd dcba dcab\n" * 20 + "abcd y é\n" * 5


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last_end", [True, False])
def test_appended_tokens_leave_the_file_unchanged(tmp_path, end, last_end):
    old = (end.join(SPELLING) + (end if last_end else "")).encode()
    tokens, output = extend(tmp_path, TEXT, old, vocab_size=len(SPELLING) + 3)
    assert output.read_bytes().startswith(old)
    assert tokens[: len(SPELLING)] == SPELLING and len(tokens) == len(SPELLING) + 3
    assert BertTokenizer(str(output)).vocabulary == tokens
    assert BertTokenizer(str(output)).tokenize("abcd abxy") == ["abcd", "abxy"]


@pytest.mark.parametrize("form", ["added_tokens.json", "tokenizer.json"])
def test_added_tokens_keep_their_ids(tmp_path, form):
    folder = tmp_path / "model"
    folder.mkdir()
    if form == "tokenizer.json":
        model = {"type": "WordPiece", "vocab": {token: number for number, token in enumerate([*SPELLING, "[URL]"])}}
        model |= {"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
        normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True}
        rules = {"normalizer": normalizer | {"strip_accents": None}, "pre_tokenizer": {"type": "BertPreTokenizer"}}
        (folder / form).write_text(json.dumps({"model": model, "added_tokens": [], **rules}, indent=2))
    else:
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in SPELLING), encoding="utf-8")
        (folder / form).write_text(json.dumps({"[URL]": len(SPELLING)}))
    flags = {"extend_vocab": str(folder), "vocab_size": len(SPELLING) + 4}
    tokens, output = extend(tmp_path, TEXT, SPELLING, **flags)
    assert tokens[: len(SPELLING) + 1] == [*SPELLING, "[URL]"] and len(tokens) == len(SPELLING) + 4
    assert output.read_text(encoding="utf-8").splitlines() == tokens
    expected = (
        ["abcd", "[URL]"] if form == "added_tokens.json" else ["abcd", *BertTokenizer(str(folder)).tokenize("[URL]")]
    )
    assert BertTokenizer(str(output)).tokenize("abcd [URL]") == expected


def test_in_unused_slots_all_other_ids_stay(tmp_path):
    old = ["[PAD]", "[unused0]", "[unused7]", *SPELLING[1:], "[unused99]"]
    tokens, output = extend(tmp_path, TEXT, old, extend_slots="unused")
    assert len(tokens) == len(old)
    changed = [i for i, (new, token) in enumerate(zip(tokens, old, strict=True)) if new != token]
    assert changed == [1, 2, len(old) - 1]
    assert {"abcd", "abxy"} <= {tokens[i] for i in changed}
    assert output.read_text(encoding="utf-8").splitlines() == tokens
    assert json.loads((tmp_path / "new.txt.settings.json").read_text())["summary"]["tokens_added"] == 3


@pytest.mark.slow
def test_the_summary_agrees_with_the_tokenizer(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        _, output = extend(tmp_path, TEXT, SPELLING, vocab_size=len(SPELLING) + 5)
    summary = json.loads((tmp_path / "new.txt.settings.json").read_text())["summary"]
    for name, path in {"before": tmp_path / "old.txt", "after": output}.items():
        tokenizer = BertTokenizer(str(path))
        tokens = [tokenizer.tokenize(word) for word in TEXT.split()]
        assert summary[name]["tokens_per_word"] == pytest.approx(sum(map(len, tokens)) / len(tokens))
        # é loses its accent to the normalizer, and e is missing
        assert summary[name]["unknown_share"] == pytest.approx(tokens.count(["[UNK]"]) / len(tokens))
    assert summary["before"]["unknown_share"] == pytest.approx(5 / 115) and summary["after"]["unknown_share"] == 0
    assert "tokens per word 3.7391 -> 1.0000, [UNK] share 0.043478 -> 0.000000" in caplog.text


def test_fewer_pieces_than_asked_for_are_explained(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        tokens, _ = extend(tmp_path, "abcd\n", SPELLING, vocab_size=1000)
    assert tokens == [*SPELLING, "abcd"]
    assert "added 1 tokens, fewer than the 983 requested: the corpus" in caplog.text


@pytest.mark.parametrize(
    "vocab, changes, message",
    [
        (SPELLING, {"vocab_size": 17}, "already has 17 tokens; give a larger size"),
        (SPELLING, {"extend_slots": "unused"}, r"has no \[unused\] slots left; use --extend_slots=end"),
        ([*SPELLING, "a"], {}, "line 18: 'a' is already on line 6"),
        ([*SPELLING, "abcd"], {}, "adds nothing to .*old.txt"),
        (SPELLING, {"extend_vocab": "missing.txt"}, "missing.txt: no such file"),
        (SPELLING, {"num_unused": 3}, "--extend_vocab contradicts --num_unused"),
    ],
)
def test_impossible_extension_writes_nothing(tmp_path, vocab, changes, message):
    refused(message, extend, tmp_path, "abcd abcd\n", vocab, **changes)
    assert not (tmp_path / "new.txt").exists()


@pytest.mark.parametrize("name", ["old.txt", "text", "vocab.txt"])
def test_an_input_is_never_overwritten(tmp_path, name):
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in SPELLING))
    source = tmp_path if name == "vocab.txt" else tmp_path / "old.txt"  # a folder means its vocabulary
    flags = {"extend_vocab": str(source), "output_file": str(tmp_path / name)}
    refused("is also an input", extend, tmp_path, TEXT, SPELLING, **flags, overwrite=name == "vocab.txt")


@pytest.mark.parametrize(
    "extra, lower, message",
    [(["Abc"], True, "has tokens with capital letters"), ([], False, "has no tokens with capital letters")],
)
def test_a_vocabulary_of_the_other_case_is_warned_of(tmp_path, caplog, extra, lower, message):
    extend(tmp_path, TEXT, [*SPELLING, *extra], do_lower_case=lower, vocab_size=40)
    assert message in caplog.text
    caplog.clear()
    extend(tmp_path, TEXT, [*SPELLING, *extra], do_lower_case=not lower, vocab_size=40, overwrite=True)
    assert "capital letters" not in caplog.text
