import bz2
import gzip
import io
import lzma
import random
import tracemalloc

import pytest
import tensorflow as tf

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
        with pytest.raises(InputError, match=rf"t\.{suffix}: is truncated or damaged"):
            read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_changed_byte_is_noticed(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    whole = COMPRESS[suffix](text(2000))
    for position in range(len(whole) // 4, len(whole), 97):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=str(path)):
            read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_plain_text_with_a_suffix_is_refused(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    path.write_bytes(b"the of and\n" * 10)
    with pytest.raises(InputError, match="rename it if it is not compressed"):
        check_corpus([str(path)], "lines")


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
