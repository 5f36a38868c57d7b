import bz2
import gzip
import json
import lzma
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.core.errors import InputError
from data_gen import documents

PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The of\nand.\n\nto in\n", [["The of", "and."], ["to in"]]),
        ("\n\n\na\n\n\n\nb\n\n\n", [["a"], ["b"]]),
        ("a\n  \t\nb\n", [["a"], ["b"]]),  # a line of white space is blank
        ("a\r\nb\r\n\r\nc\r\n", [["a", "b"], ["c"]]),
        ("a\n\u00a0\nb\n\u3000\nc\n", [["a"], ["b"], ["c"]]),
        ("a\n\x00\nb\x00c\n", [["a", "\x00", "b\x00c"]]),  # the tokenizer drops it, like the original's
        ("\ufeffa\nb\n", [["\ufeffa", "b"]]),  # the tokenizer drops the mark
        ("a\u2028b\nc\x85d\n", [["a\u2028b", "c\x85d"]]),  # only a line feed ends a line
        ("\n \n\r\n", []),
        # invalid bytes are dropped first, so a line of invalid bytes is blank
        (b"a\n\xff\nb\xff\xfec\n\xe3\x80", [["a"], ["bc"]]),
    ],
)
def test_documents_are_what_the_originals_format_says(text, expected):
    text = text.encode() if isinstance(text, str) else text
    assert [document for document in documents.split_lines(text) if document] == expected


def read(path, input_format, chunk_bytes):
    """Returns the documents of a file, without empty ones, for any cuts of the file; and their number of chunks."""
    sources = documents.plan_sources(str(path), input_format, chunk_bytes)
    chunks = [c for s in sources for c in documents.read_documents(s, input_format, "text", chunk_bytes)]
    return [document for chunk in chunks for document in chunk if document], len(chunks)


@pytest.mark.parametrize("suffix", PACK)
def test_each_line_is_document_split_into_sentences(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(PACK[suffix]("He went home. She \xe9 stayed!\n\nMr. B. left.\r\n".encode("latin-1") * 3))
    for chunk_bytes in (10, 1000):
        found, chunks = read(path, "documents", chunk_bytes)
        assert found == [["He went home.", "She stayed!"], ["Mr. B. left."]] * 3
        assert (chunks > 1) == (chunk_bytes == 10)


def test_tags_of_wikiextractor_are_no_text(tmp_path):
    path = tmp_path / "wiki_00"
    path.write_text(
        '<doc id="12" url="u?curid=12" title="A">\n'
        'One goes. Two goes.\n\nEnd.\n</doc>\n<doc id="13">\n A </doc>\n<doc>\n'
    )
    for chunk_bytes in (1, 1000):
        found, _ = read(path, "lines", chunk_bytes)
        assert found == [["One goes. Two goes."], ["End."], ["A </doc>", "<doc>"]]
        found, _ = read(path, "documents", chunk_bytes)
        assert found == [["One goes.", "Two goes."], ["End."], ["A </doc>"], ["<doc>"]]
    path.write_text('<doc id="1">\nOne goes.\n</doc>\n' * 9)
    assert read(path, "lines", 20) == ([["One goes."]] * 9, 9), "the file is cut although it has no blank line"


def naive(text):
    """Reads documents with the original's loop over lines."""
    found = [[]]
    for line in text.decode("utf-8", errors="ignore").split("\n"):
        if line.strip() and not line.startswith(("<doc id=", "</doc>")):
            found[-1].append(line.strip())
        else:
            found.append([])
    return [document for document in found if document]


LINES = st.lists(
    st.sampled_from(
        [b"a b", b"c", b"d\r", b"", b"", b" ", b"\t\r", b"\x0b\x0c", "\u3000".encode(), b"\xe3\x80", b"\xff", b"\x00",
         b'<doc id="7" url="https://x.org?a=7" title="A \xe3\x80 "b"">', b"</doc>", b"</doc> \r"]
    ),
    max_size=14,
).map(b"\n".join)  # fmt: skip


@pytest.mark.parametrize("suffix", PACK)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(LINES, st.booleans())
def test_lines_read_in_ranges_are_those_read_at_once(tmp_path_factory, suffix, text, ends):
    path = tmp_path_factory.mktemp("lines") / f"a{suffix}"
    text += b"\n" * ends
    path.write_bytes(PACK[suffix](text))
    for chunk_bytes in (1, 2, 3, 5, 8, 13, 50):
        assert read(path, "lines", chunk_bytes)[0] == naive(text)


JSON = [["One goes."], ["Two goes.", "Three \u3000 goes."], [], ["Four."], ["Five goes on.\nAnd on."], ["Six."]]
PAGE = "  <page><title>T{0}</title><ns>0</ns><revision><text>The page {0} stands.</text></revision></page>\n"


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\n\n"])
def test_json_lines_in_ranges_equal_whole_read(tmp_path, suffix, line_end):
    text = line_end.join(json.dumps({"text": text}, ensure_ascii=False) for text in JSON).encode()
    for content in (text, b"\xef\xbb\xbf" + text + b"\n"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(PACK[suffix](content))
        counts = set()
        for chunk_bytes in range(1, 60):
            found, count = read(path, "jsonl", chunk_bytes)
            assert found == [
                ["One goes."], ["Two goes.", "Three goes."], ["Four."], ["Five goes on.", "And on."], ["Six."],
            ]  # fmt: skip
            counts.add(count)
        assert max(counts) >= 6 and min(counts) < 6


@pytest.mark.parametrize("suffix", PACK)
def test_pages_read_in_ranges_are_those_read_at_once(tmp_path, suffix):
    head = '<mediawiki version="0.11">\n  <siteinfo><sitename>W</sitename></siteinfo>\n'
    text = (head + "".join(PAGE.format(i) for i in range(5)) + "</mediawiki>\n").encode()
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACK[suffix](text))
    part = tmp_path / f"part{suffix}"
    part.write_bytes(PACK[suffix]("".join(PAGE.format(i) for i in range(5)).encode()))
    expected = [[f"The page {i} stands."] for i in range(5)]
    assert read(part, "wikipedia", 1)[0] == read(part, "wikipedia", 10_000)[0] == expected
    counts = set()
    for chunk_bytes in [*range(1, 60), 150, 400, len(text) - 1, len(text), len(text) + 1]:
        found, count = read(path, "wikipedia", chunk_bytes)
        assert found == expected
        counts.add(count)
    assert {1, 2, 6} <= counts


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace(b"<page><title>T3", b"<pag><title>T3"),
        lambda text: text[: text.index(b"<title>T4")],
        lambda text: text[: text.index(b"</mediawiki>") - 4],
    ],
)
def test_damaged_page_is_reported_at_any_chunk_size(tmp_path, suffix, damage):
    text = "<mediawiki>\n" + "".join(PAGE.format(i) for i in range(5)) + "</mediawiki>\n"
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACK[suffix](damage(text.encode())))
    for chunk_bytes in (1, 20, 60, 100, 130, 200, 300, 1000):
        with pytest.raises(InputError, match=re.escape(str(path))):
            read(path, "wikipedia", chunk_bytes)


@pytest.mark.parametrize("suffix", PACK)
def test_a_bad_json_line_is_named_by_its_number(tmp_path, suffix):
    lines = [json.dumps({"text": "One goes."})] * 7
    lines[2] = ""
    for bad in (0, 3, 6):
        text = "\n".join([*lines[:bad], '{"text": 3}', *lines[bad + 1 :]])
        path = tmp_path / f"a{suffix}"
        path.write_bytes(PACK[suffix](text.encode()))
        for chunk_bytes in (1, 20, 50, 70, 1000):
            with pytest.raises(InputError, match=re.escape(f"{path}, line {bad + 1}: field 'text' must be")):
                read(path, "jsonl", chunk_bytes)


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("input_format", ["lines", "jsonl", "wikipedia"])
def test_refuses_document_that_is_too_long(tmp_path, suffix, input_format, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT_BYTES", 1 << 17)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACK[suffix](b"word word\n" * (1 if input_format == "lines" else 0) + b"a " * (1 << 17)))
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: a document is longer than 0 MiB; .*"):
        read(path, input_format, 1000)


def test_a_blank_line_across_two_reads_is_found(tmp_path):
    # the search for a cut has steps of 64 KiB
    for shift in range(-3, 3):
        text = b"a" * ((1 << 16) + shift) + b"\n \t\n" + b"b\n"
        path = tmp_path / "a"
        path.write_bytes(text)
        assert len(documents.plan_sources(str(path), "lines", 1)) == 2


@pytest.mark.parametrize(
    ("names", "format"),
    [
        (["a.txt", "b.TXT.gz", "corpus"], "lines"),
        (["c4.00000-of-01024.json.gz", "b.jsonl"], "jsonl"),
        (["train-00000-of-00003.parquet"], "parquet"),
        (["enwiki-latest-pages-articles.xml.bz2"], "wikipedia"),
    ],
)
def test_extensions_state_the_format(names, format):
    assert documents.format_of(names, None) == format
    assert documents.format_of([*names, "other.parquet"], "documents") == "documents"
    with pytest.raises(InputError, match="has the formats .*; give files of one format"):
        documents.format_of([*names, "other.jsonl", "other.txt"], None)
