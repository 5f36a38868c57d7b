import bz2
import gzip
import itertools
import lzma
import random
import tracemalloc

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.core.errors import InputError
from data_gen import compressed
from data_gen.corpus_check import check_corpus

COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
SUFFIXES = list(COMPRESS)


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


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(SUFFIXES),
    st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    st.integers(1, 40),
    st.sampled_from([1, 2, 7, 1 << 18]),
)
def test_members_one_after_another_are_one_text_whatever_sizes_are_read(suffix, members, step, block):
    path = f"ram://members.{suffix}"  # a file system of TensorFlow, not a local file
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(b"".join(COMPRESS[suffix](member) for member in members))
    before, compressed._BLOCK = compressed._BLOCK, block
    try:
        with compressed.open_binary(path) as file:
            tokens = list(iter(lambda: file.read(step), b""))
    finally:
        compressed._BLOCK = before
    assert b"".join(tokens) == b"".join(members)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_gives_lines(tmp_path, suffix):
    (tmp_path / f"t.{suffix}").write_bytes(COMPRESS[suffix](b"the\n\nof\r\nand"))
    with compressed.open_binary(str(tmp_path / f"t.{suffix}")) as file:
        assert list(file) == [b"the\n", b"\n", b"of\r\n", b"and"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("members", [1, 2])
def test_a_file_cut_off_anywhere_is_refused_by_name(tmp_path, suffix, members):
    path = tmp_path / f"t.{suffix}"
    data = [COMPRESS[suffix](text(300, seed)) for seed in range(members)]
    whole, borders = b"".join(data), set(itertools.accumulate(map(len, data)))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if length in borders:  # a complete file with fewer members
            read(path)
            continue
        # after a cut inside the magic bytes of a second xz member, the rest is not a stream
        with pytest.raises(InputError, match=rf"t\.{suffix}: (ends in the middle|is damaged)"):
            read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_changed_byte_is_noticed(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    whole = COMPRESS[suffix](text(2000)) + COMPRESS[suffix](text(2000, 1))
    for position in range(len(whole) // 4, len(whole), 97):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        try:
            found = read(path)
        except InputError as error:
            assert str(path) in str(error)
        else:
            # gzip's header contains a time stamp and other data without a checksum
            assert suffix == "gz" and found == text(2000) + text(2000, 1)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_plain_text_with_a_suffix_and_text_after_the_end_are_refused(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    path.write_bytes(b"the of and\n" * 10)
    with pytest.raises(InputError, match="rename it if it is not compressed"):
        check_corpus([str(path)], "lines")
    path.write_bytes(COMPRESS[suffix](b"the") + b"the of and\n" * 10)
    with pytest.raises(InputError, match="damaged"):
        read(path)


@pytest.mark.parametrize("suffix, fine", [("gz", True), ("xz", True), ("bz2", False)])
def test_zeros_after_the_end_are_padding_where_the_format_has_it(tmp_path, suffix, fine):
    path = tmp_path / f"t.{suffix}"
    path.write_bytes(COMPRESS[suffix](b"the") + bytes(512) + COMPRESS[suffix](b" of") + bytes(512))
    if fine:
        assert read(path) == b"the of"
    else:
        with pytest.raises(InputError, match="damaged"):
            read(path)


@pytest.mark.parametrize("name", ["t.zip", "t.txt.zst"])
def test_another_compression_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError, match="compress as .gz"):
        check_corpus([str(tmp_path / name)], "lines")


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
