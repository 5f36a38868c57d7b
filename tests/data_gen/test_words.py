import bz2
import collections
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen import words


def count(path, lower=True, max_words=1000):
    return words.count_words([str(path)], lower, max_words)


@pytest.mark.parametrize(
    "lower, expected",
    [
        (True, {"the": 3, "cafe": 2, "'": 1, "s": 1, ",": 1, "中": 2, "!": 1}),
        (False, {"The": 2, "the": 1, "Café": 1, "cafe\u0301": 1, "'": 1, "s": 1, ",": 1, "中": 2, "!": 1}),
    ],
)
def test_words_are_counted_as_the_tokenizer_sees_them(tmp_path, lower, expected):
    (tmp_path / "text").write_text("The the, Café's\n\n\u00a0cafe\u0301 中中! The\x00\n", encoding="utf-8")
    assert count(tmp_path / "text", lower) == words.WordCounts(expected, 0, 0, 0)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(["a", "é", "中", "😀", " ", "\n", "word"]), max_size=40), st.sampled_from([8, 11, 64]))
def test_blocks_are_cut_at_line_ends_or_spaces(tmp_path_factory, parts, block):
    path = tmp_path_factory.mktemp("blocks") / "text"
    text = "".join(parts)
    path.write_text(text, encoding="utf-8", newline="")
    before, words._BLOCK = words._BLOCK, block
    try:
        with path.open("rb") as file:
            blocks = [found.decode("utf-8") for found in words.read_blocks(file)]
    finally:
        words._BLOCK = before
    assert "".join(blocks) == text
    for found in blocks[:-1]:
        assert len(found.encode()) <= 2 * block
        assert found.endswith("\n") or "\n" not in found
        assert found.endswith(("\n", " ")) or " " not in found


def test_one_endless_line_is_read_in_blocks(tmp_path):
    (tmp_path / "text").write_text("中" * 200_000 + " of" * 200_000, encoding="utf-8")
    with (tmp_path / "text").open("rb") as file:
        assert max(map(len, words.read_blocks(file))) <= 2 * words._BLOCK
    assert count(tmp_path / "text").counts == {"中": 200_000, "of": 200_000}


JSON_LINES = (
    json.dumps({"url": "http://x.org", "body": "Schön ist's.\nthe the", "text": "left out"})
    + "\n\n"
    + json.dumps({"body": ["The \u00e4 of", "of"], "lang": "de"})
).encode()
DUMP = (
    b"<mediawiki>\n<page><title>A</title><ns>0</ns><revision><text>'''The''' [[cat|cats]] run.\n* list</text>"
    b"</revision></page>\n<page><title>Talk:A</title><ns>1</ns><revision><text>I think.</text></revision></page>\n"
    b"</mediawiki>"
)


@pytest.mark.quick_cases(
    "lines-The \\xff of\\n\\nof-expected0-compress",
    "lines-b\\xc3\\xa4h-expected1-bytes",
    "jsonl-content3-expected3-bytes",
)
@pytest.mark.parametrize("pack", [bytes, bz2.compress])
@pytest.mark.parametrize(
    ("input_format", "content", "expected"),
    [
        ("lines", b"The \xff of\n\nof", {"the": 1, "of": 2}),
        ("lines", b"b\xc3\xa4h", {"bah": 1}),  # one word without a line end
        ("documents", b"The \xff of. The\n\nof", {"the": 2, "of": 2, ".": 1}),
        ("jsonl", JSON_LINES, {"schon": 1, "ist": 1, "'": 1, "s": 1, ".": 1, "the": 3, "a": 1, "of": 2}),
        ("wikipedia", DUMP, {"the": 1, "cats": 1, "run": 1, ".": 1}),
    ],
)
def test_counts_words_of_text_read_by_generator(tmp_path, monkeypatch, input_format, content, expected, pack):
    done = []
    monkeypatch.setattr(words.ProgressBar, "update", lambda _, size: done.append(size))
    path = tmp_path / ("text" if pack is bytes else "text.bz2")
    path.write_bytes(pack(content))
    assert words.count_words([str(path)], True, 1000, input_format, "body").counts == expected
    assert pack is not bytes or sum(done) == len(content), "progress counts the bytes of the file"


@pytest.mark.parametrize("input_format", ["lines", "documents"])
def test_tags_of_wikiextractor_are_not_counted(tmp_path, input_format):
    (tmp_path / "text").write_text('<doc id="1" url="u">\nThe of\n</doc>\n<doc> of')
    found = words.count_words([str(tmp_path / "text")], True, 9, input_format).counts
    assert found == {"the": 1, "of": 2, "<": 1, "doc": 1, ">": 1}


def test_endless_json_sentence_is_counted_in_blocks(tmp_path, monkeypatch):
    (tmp_path / "text").write_text(json.dumps({"text": "of " * 400_000}))
    read, blocks = words.read_blocks, []
    monkeypatch.setattr(words, "read_blocks", lambda file: (blocks.append(block) or block for block in read(file)))
    assert words.count_words([str(tmp_path / "text")], True, 9, "jsonl").counts == {"of": 400_000}
    assert len(blocks) > 1, "test_one_endless_line_is_read_in_blocks tests their size"


def counted(folder, max_words, *texts) -> words.WordCounts:
    """Counts the words of texts in as many files, which are counted one after another."""
    for number, text in enumerate(texts):
        (folder / str(number)).write_text(f"{text}\n")
    return words.count_words([str(folder / str(number)) for number in range(len(texts))], True, max_words)


batches = st.lists(
    st.dictionaries(st.integers(0, 60).map(lambda i: "w" * (i % 9 + 1) + str(i)), st.integers(1, 5)), max_size=12
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(batches, st.integers(4, 80))
def test_counts_are_exact_up_to_the_limit(tmp_path_factory, stream, max_words):
    texts = [" ".join(word for word, number in batch.items() for _ in range(number)) for batch in stream]
    true, found = collections.Counter(" ".join(texts).split()), counted(tmp_path_factory.mktemp("a"), max_words, *texts)
    assert len(found.counts) <= max_words
    if len(true) <= max_words:
        assert found.counts == true and not found.largest_error and not found.dropped_words
    assert all(true[w] - found.largest_error <= found.counts.get(w, 0) <= true[w] for w in true)
    assert found.dropped_occurrences == true.total() - sum(found.counts.values())
    assert found.dropped_words >= len(true) - len(found.counts)


def test_the_rarest_words_go_first(tmp_path):
    # b and c have 2, d has 9, so three fit; words with 1 do not
    found = counted(tmp_path, 6, "a b b c d d d d d d d d d e f", "c g")
    assert found == words.WordCounts({"b": 2, "c": 2, "d": 9}, 4, 4, 1)
    first = "a b c c c c c c c d e"
    assert counted(tmp_path, 4, first) == words.WordCounts({"c": 7, "e": 1}, 3, 3, 1)
    # A word may have lost an occurrence in each of the two drops, so their errors add up.
    assert counted(tmp_path, 4, first, "f g h") == words.WordCounts({"c": 7, "h": 1}, 6, 6, 2)
