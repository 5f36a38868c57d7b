import gzip
import json
import re

import pytest

from bert_tf.core.errors import InputError
from data_gen.corpus_check import check_corpus

TEXT = "Où est-il allé ?\nIl est rentré chez lui.\n\n" * 20


@pytest.mark.parametrize(
    "content, message",
    [
        (TEXT.encode("utf-16"), "is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8"),
        (TEXT.encode("utf-16-le"), "is binary data or UTF-16; if it is UTF-16, convert it: iconv -f UTF-16LE"),
        (bytes(range(256)) * 9, "is binary data, not text"),
        (gzip.compress(TEXT.encode(), mtime=0), "is compressed with gzip; unpack it"),
        (b"%PDF-1.7\n", "is a PDF; extract its text first"),
    ],
)
def test_what_is_surely_no_text_is_refused(tmp_path, content, message):
    (tmp_path / "fine.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "corpus").write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/corpus: {message}")):
        check_corpus([f"{tmp_path}/fine.txt", f"{tmp_path}/corpus"], "lines")


DUMP = '<?xml version="1.0"?>\n<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">\n<page>\n'
PAGE = "<!DOCTYPE html>\n<html>\n<p>Il est</p>\n"
LINE = json.dumps({"text": "Il est rentré."}) + "\n"


@pytest.mark.parametrize(
    "content, input_format, message",
    [
        (TEXT.encode("latin-1"), "lines", "has bytes that are not UTF-8 and are dropped; convert it, for example from"),
        (DUMP.encode(), "lines", "looks like XML or HTML"),
        (PAGE.encode(), "documents", "looks like XML or HTML"),
        (LINE.encode() * 3, "lines", "looks like JSON Lines, whose keys are read as text; give --input_format=jsonl"),
        (b"a\rb\r\r" * 9, "lines", "has only carriage returns as line ends; convert them: tr"),
        (b"\n \n", "lines", "contains no text"),
        (b"a word " * 300 + b"\n", "lines", "has lines of more than 1000 characters"),
    ],
)
def test_what_looks_like_another_format_is_warned_of(tmp_path, caplog, content, input_format, message):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(content)
    check_corpus([f"{tmp_path}/a", f"{tmp_path}/b"], input_format)
    (line,) = caplog.messages
    assert line.startswith(f"--input_file: {tmp_path}/a {message}")
    assert line.endswith(" (other files like this: 1)")


@pytest.mark.parametrize(
    "content, input_format",
    [
        (TEXT.encode() * 200, "lines"),  # longer than the sample, which ends inside a character
        (b"\xef\xbb\xbf" + TEXT.encode(), "lines"),
        (b" \n" * 35_000 + TEXT.encode(), "lines"),  # the sample is blank
        (LINE.encode(), "jsonl"),
        (DUMP.encode(), "wikipedia"),
        (b'<doc id="1" url="u" title="T">\nT\n\n</doc>\n' * 9, "lines"),
        (b"if a < b and b > c\nsome \x00 stray \x01 ones\n", "lines"),
    ],
)
def test_ordinary_text_is_taken_in_silence(tmp_path, caplog, content, input_format):
    (tmp_path / "a").write_bytes(content)
    check_corpus([f"{tmp_path}/a"], input_format)
    assert not caplog.messages
