"""Joined gzip files, held to Python's own gzip and to TensorFlow's reader."""

import gzip
import pathlib
import re
import zlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecords import gzip_join, reader, writer
from tfrecords.errors import InputError

BUFFER = 1 << 18  # of TensorFlow's reader


def read(path) -> list[bytes]:
    return list(tf.data.TFRecordDataset(str(path), compression_type="GZIP").as_numpy_iterator())


def incompressible(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(0, 5000))
@settings(max_examples=200, deadline=None)
def test_the_checksum_of_two_strings_together_is_zlibs(first, second, zeros):
    second = second + bytes(zeros)
    got = gzip_join.combined(zlib.crc32(first), zlib.crc32(second), len(second))
    assert got == zlib.crc32(first + second)


@given(st.lists(st.binary(max_size=2000), max_size=5))
@settings(max_examples=100, deadline=None)
def test_packed_bytes_are_those_that_python_unpacks(blocks):
    assert gzip.decompress(b"".join(gzip_join.packed(blocks))) == b"".join(blocks)


@given(parts=st.lists(st.lists(st.binary(max_size=3000), max_size=3), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_joined_parts_unpack_to_what_they_hold_in_one_member(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("join")
    for index, records in enumerate(parts):
        writer.write_records(f"{folder}/{index}", records, gzip_compress=True)
    names = [f"{folder}/{index}" for index in range(len(parts))]
    content = b"".join(gzip_join.joined(names))
    assert gzip.decompress(content) == b"".join(gzip.decompress(pathlib.Path(name).read_bytes()) for name in names)
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    unpacker.decompress(content)
    assert unpacker.eof and not unpacker.unused_data, "one member only"
    (folder / "whole").write_bytes(content)
    assert read(folder / "whole") == sum(parts, [])


def test_every_record_is_read_wherever_a_part_ends_in_the_readers_buffer(tmp_path):
    """Members one after the other lose records here: the test after this one."""
    tail = [bytes([number]) * 9 for number in range(3)]
    writer.write_records(f"{tmp_path}/tail", tail, gzip_compress=True)
    ends = set()
    for size in range(BUFFER - 140, BUFFER - 90):
        head = incompressible(size)
        writer.write_records(f"{tmp_path}/head", [head], gzip_compress=True)
        ends.add(pathlib.Path(f"{tmp_path}/head").stat().st_size - BUFFER)
        writer.join_files(f"{tmp_path}/whole", [f"{tmp_path}/head", f"{tmp_path}/tail"])
        assert read(tmp_path / "whole") == [head, *tail]
    assert min(ends) < -10 and max(ends) > 10, "the sizes above are beside the buffer's end"


def test_why_members_are_not_just_set_one_after_the_other(tmp_path):
    """TensorFlow's reader drops what follows without a word; if this fails it has learnt better."""
    empty = gzip.compress(b"")
    writer.write_records(f"{tmp_path}/one", [b"x"] * 3, gzip_compress=True)
    one = pathlib.Path(f"{tmp_path}/one").read_bytes()
    (tmp_path / "whole").write_bytes(one + empty + one)
    assert len(gzip.decompress(one + empty + one)) == 6 * 17
    assert len(read(tmp_path / "whole")) == 3
    message = "TensorFlow reads 3 record(s) and leaves 51 bytes unread, since the file was compressed in several parts"
    assert re.search(re.escape(message), reader.find_damage([f"{tmp_path}/whole"]))


@pytest.mark.parametrize("spoil", [
    lambda whole: whole[:-1],
    lambda whole: whole[:20],
    lambda whole: whole + b"\0",
    lambda whole: gzip.compress(gzip.decompress(whole)),
    lambda whole: gzip.decompress(whole),
])  # fmt: skip
def test_a_part_that_is_not_as_it_was_written_is_refused_and_leaves_nothing(tmp_path, spoil):
    for name in ("good", "bad"):
        writer.write_records(f"{tmp_path}/{name}", [b"some", b"records"], gzip_compress=True)
    bad = tmp_path / "bad"
    bad.write_bytes(spoil(bad.read_bytes()))
    with pytest.raises(InputError, match=re.escape(f"{bad}: not as it was written")):
        writer.join_files(f"{tmp_path}/whole", [f"{tmp_path}/good", str(bad)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad", "good"]
