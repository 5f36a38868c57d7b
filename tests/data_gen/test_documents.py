"""Documents of text, JSON Lines and Parquet files for any cuts of a file, and their sentences."""

import bz2
import gzip
import json
import lzma
import pathlib
import re
import sys

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.core.json_lines import LineError
from data_gen import documents, sentences
from data_gen.documents import json_document
from data_gen.sentences import split_sentences
from data_gen.words import count_words
from tests.bert_tf.pretraining_runs import write_records
from tests.kit import refused

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
        refused(re.escape(str(path)), read, path, "wikipedia", chunk_bytes)


@pytest.mark.parametrize("suffix", PACK)
def test_a_bad_json_line_is_named_by_its_number(tmp_path, suffix):
    lines = [json.dumps({"text": "One goes."})] * 7
    lines[2] = ""
    for bad in (0, 3, 6):
        text = "\n".join([*lines[:bad], '{"text": 3}', *lines[bad + 1 :]])
        path = tmp_path / f"a{suffix}"
        path.write_bytes(PACK[suffix](text.encode()))
        for chunk_bytes in (1, 20, 50, 70, 1000):
            refused(re.escape(f"{path}, line {bad + 1}: field 'text' must be"), read, path, "jsonl", chunk_bytes)


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("input_format", ["lines", "jsonl", "wikipedia"])
def test_refuses_document_that_is_too_long(tmp_path, suffix, input_format, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT_BYTES", 1 << 17)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACK[suffix](b"word word\n" * (1 if input_format == "lines" else 0) + b"a " * (1 << 17)))
    refused(f"^{re.escape(str(path))}: a document is longer than 0 MiB; .*", read, path, input_format, 1000)


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
    mixed = [*names, "other.jsonl", "other.txt"]
    refused("has the formats .*; give files of one format", documents.format_of, mixed, None)


def line(**record):
    return json.dumps(record).encode() + b"\n"


@pytest.mark.parametrize(
    "content, expected",
    [
        (line(text="One goes. Two goes.\nThree goes", id=7), ["One goes.", "Two goes.", "Three goes"]),
        (line(text="no end here\nnor here"), ["no end here", "nor here"]),  # the end of a paragraph ends a sentence
        (line(text=["One goes. Two goes.", "", "and\nthree"]), ["One goes.", "Two goes.", "and three"]),
        (line(text=""), []),
        (b" \r\n", []),
        (b"\xef\xbb\xbf" + line(text="One goes."), ["One goes."]),
        (b'{"text": "caf\xc3\xa9 \xff\xfe is open."}', ["café is open."]),
        (line(text=None), []),  # as pandas writes a missing text
        (rb'{"text": "half \ud83d of a pair, whole \ud83d\ude00."}', ["half of a pair, whole 😀."]),
    ],
)
def test_the_sentences_of_a_line(content, expected):
    assert json_document(content, "text") == expected


def test_a_line_has_a_field_and_a_language():
    assert json_document(line(text="Not this.", body="Je to tj. Praha."), "body", "cs") == ["Je to tj. Praha."]


@pytest.mark.parametrize(
    "content, message",
    [
        (b'{"text": "a"', "is not JSON (Expecting ',' delimiter at character 13); write one object per line"),
        (b"plain text", "is not JSON (Expecting value at character 1)"),
        (b'["text"]', "is a list, not an object"),
        (line(body="a", id=3), "no field 'text'; give one of its fields as --text_field: 'body', 'id'"),
        (line(text=4), "field 'text' must be a string or a list of strings, found a number"),
        (line(text=["a", 3]), "field 'text' must be a list of strings, found a number in it"),
        (b'{"text":' + b"[" * 100_000, "is not JSON ("),
        (b'{"text":' + b"9" * 10_000 + b"}", "is not JSON ("),
    ],
)
def test_what_is_wrong_with_a_line(content, message):
    with pytest.raises(LineError) as raised:
        json_document(content, "text")
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


TEXTS = [f"The man said {number}. He had it\nall of it" for number in range(300)] + ["", None]


@pytest.fixture
def parquet(tmp_path):
    """A Parquet file with several row groups, as `datasets` and Spark write them."""
    table = pyarrow.table({"id": range(len(TEXTS)), "text": TEXTS})
    pyarrow.parquet.write_table(table, tmp_path / "dump.parquet", row_group_size=100)
    return str(tmp_path / "dump.parquet")


def read_parquet(path, **how):
    sources = documents.plan_sources(path, "parquet")
    return [one for source in sources for chunk in documents.read_documents(source, "parquet", **how) for one in chunk]


def test_each_row_is_a_document(parquet):
    assert len(documents.plan_sources(parquet, "parquet")) == 4
    found = read_parquet(parquet)
    assert found == [[f"The man said {n}.", "He had it", "all of it"] for n in range(300)] + [[], []]
    assert read_parquet(parquet, chunk_bytes=1000) == found


def test_a_row_group_after_an_empty_one_is_read(tmp_path):
    table = pyarrow.table({"text": ["One here.", "Je to tj. Praha."]})
    path = str(tmp_path / "filtered.parquet")
    with pyarrow.parquet.ParquetWriter(path, table.schema, use_dictionary=False) as file:
        for rows in (table[:1], table[:0], table[1:]):
            file.write_table(rows)
    assert read_parquet(path) == [["One here."], ["Je to tj.", "Praha."]]
    assert read_parquet(path, language="cs") == [["One here."], ["Je to tj. Praha."]]


def test_records_equal_those_of_json_lines(tmp_path, vocab_file):
    table = pandas.DataFrame({"text": TEXTS[:-1]})
    table.to_json(tmp_path / "dump.jsonl", orient="records", lines=True)
    table.to_parquet(tmp_path / "dump.parquet")
    sizes, counts = [], []
    for form in ("parquet", "jsonl"):
        write_records(tmp_path / form, f"{tmp_path}/dump.{form}", vocab_file)
        sizes.append((tmp_path / form).stat().st_size)
        counts.append(count_words([f"{tmp_path}/dump.{form}"], True, 10**6, form).counts)
    assert abs(sizes[0] - sizes[1]) < 0.02 * sizes[1], "the blocks, so the draws, differ"
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "file, field, message",
    [
        ("dump", "body", "dump.parquet: has no column 'body'; give one of .*--text_field: id, text"),
        ("dump", "id", "dump.parquet: field 'id' must be a string or a list of strings"),
        ("other", "text", "other.parquet: is not a Parquet file, or is damaged"),
    ],
)
def test_other_files_and_columns_are_named(parquet, file, field, message):
    other = parquet.replace("dump", "other")
    pathlib.Path(other).write_text("no Parquet file, but a text of some length")
    refused(message, read_parquet, other if file == "other" else parquet, text_field=field)


@pytest.mark.parametrize(
    "expected",
    [
        ["Mr. Smith went to Washington.", "He met Dr. Jones at 3 p.m. in the U.S. Senate."],
        ['"Where are you going?" she asked.', 'He said: "I am leaving."', "Then he left."],
        ["Some fruits, e.g. apples, i.e. Malus domestica, are red.", "Others are not."],
        ["It was written by Smith et al. in 1999.", "They used Python 3.11."],
    ],
)
def test_a_full_stop_is_no_end_by_itself(expected):
    assert split_sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    "language, expected",
    [
        ("de", ["Am 3. Mai kam er, vgl. Nr. 3.", "Dann ging er."]),
        ("cs", ["Žije tu tzv. Karel.", "Je to tj. Praha."]),  # by Slovak rules
        ("pl", ["Ul. Długa i np. Warszawa.", "Tam mieszka."]),
        ("ko", ["그는 갔다.", "그녀는 왔다."]),  # by English rules
    ],
)
def test_languages_have_their_own_rules(language, expected):
    assert split_sentences(" ".join(expected), language) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", []),
        (" \n\t\u3000", []),
        ("  One goes\nhere.\r\n Two\u00a0goes  there. ", ["One goes here.", "Two goes there."]),
        ("A heading\n \nThen a sentence.", ["A heading", "Then a sentence."]),
        # the library's limit, which single spaces avoid
        ("B\u2028. runs on", ["B . runs on"]),
        ("J.\u3000R. Tolkien wrote.", ["J. R. Tolkien wrote."]),
    ],
)
def test_white_space(text, expected):
    assert split_sentences(text) == expected


_ODD = st.text(alphabet="aB .!?…。\"'“”()[]«»‘’\n\r\t\u2028\u3000\u0085\x1c\u00a0１İé́😀", max_size=60)


@given(_ODD | st.text(max_size=60), st.sampled_from(["en", "de", "el", "hy", "ja", "my", "ta", "zh"]))
def test_nothing_is_lost_but_white_space(text, language):
    found = split_sentences(text, language)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence and sentence == " ".join(sentence.split()) for sentence in found)


def test_a_missing_library_is_said_with_its_mend(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    sentences.load.cache_clear()
    refused(r"sentencex is not installed.*pip install sentencex", split_sentences, "One. Two.")
