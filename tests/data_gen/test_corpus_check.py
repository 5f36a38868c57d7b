import bz2
import gzip
import io
import json
import lzma
import random
import re
import tracemalloc

import pytest
import tensorflow as tf

from bert_tf.core.errors import InputError
from data_gen import compressed
from data_gen.corpus_check import check_corpus
from tests.kit import refused

COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
SUFFIXES = list(COMPRESS)
TEXT = "Où est-il allé ?\nIl est rentré chez lui.\n\n" * 20


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("corpus", TEXT.encode("utf-16"), "is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8"),
        ("corpus", TEXT.encode("utf-16-le"), "is binary data or UTF-16; .*, convert it: iconv -f UTF-16LE"),
        ("corpus", bytes(range(256)) * 9, "is binary data, not text"),
        ("corpus", gzip.compress(TEXT.encode(), mtime=0), "is compressed with gzip; unpack it"),
        ("corpus", b"%PDF-1.7\n", "is a PDF; extract its text first"),
        *(
            (f"t.{suffix}", b"the of\n" * 10, "is truncated .* rename it if it is not compressed")
            for suffix in SUFFIXES
        ),
        *((name, b"x", ".*compress as .gz") for name in ("t.zip", "t.txt.zst")),
    ],
)
def test_what_is_surely_no_text_is_refused(tmp_path, name, content, message):
    (tmp_path / "fine.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{re.escape(str(tmp_path / name))}: {message}"):
        check_corpus([f"{tmp_path}/fine.txt", f"{tmp_path}/{name}"], "lines")


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


def text(size, seed=0):
    return random.Random(seed).randbytes(size // 2) + b"the of and\n" * (size // 22)


def read(path):
    with compressed.open_binary(str(path)) as file:
        return file.read()


@pytest.mark.parametrize("name", ["t.txt", "t.gz", "t.txt.bz2", "t.xz", "T.GZ"])
@pytest.mark.parametrize("size", [0, 1, 1_000_000])
def test_a_file_gives_its_text_back(tmp_path, name, size):
    plain = text(size)
    data = COMPRESS.get(name.lower().rsplit(".")[-1], bytes)(plain)
    (tmp_path / name).write_bytes(data)
    assert read(tmp_path / name) == plain


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_members_one_after_another_are_one_text(suffix):
    path = f"ram://members.{suffix}"  # a file system of TensorFlow, not a local file
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(b"".join(COMPRESS[suffix](member) for member in (b"the\nof", b"", text(500_000), b"and\r\n")))
    with compressed.open_binary(path) as file:
        assert list(file) == list(io.BytesIO(b"the\nof" + text(500_000) + b"and\r\n"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_cut_off_anywhere_is_refused_by_name(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    whole = COMPRESS[suffix](text(300))
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        refused(rf"t\.{suffix}: is truncated or damaged", read, path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_changed_byte_is_noticed(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    whole = COMPRESS[suffix](text(2000))
    for position in range(len(whole) // 4, len(whole), 97):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        refused(str(path), read, path)


@pytest.mark.quick_cases("gz")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_memory_does_not_grow_with_the_text(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    path.write_bytes(COMPRESS[suffix](bytes(100_000_000)))  # a thousandth of this size on disk
    tracemalloc.start()
    try:
        with compressed.open_binary(str(path)) as file:
            size = sum(len(block) for block in iter(lambda: file.read(1 << 20), b""))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == 100_000_000
    assert peak < 20_000_000
