"""Gzip files joined to one gzip file of a single member, without packing anything again.

A gzip file may consist of several members one after the other, but TensorFlow's reader takes a member that
ends at an unlucky place of its buffer, or an empty one, for the end of the file, and leaves the rest unread
without a word (`tests/tfrecords/test_gzip_join.py`). So what stands between two members is taken out:

    header  blocks  empty last block  CRC-32, length | header  blocks  empty last block  CRC-32, length

becomes

    header  blocks  blocks  empty last block  CRC-32, length

RFC 1951 (blocks), RFC 1952 (header and trailer).
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from tfrecords.errors import InputError

# no name, no time, no system, so that the same records give the same file
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK = b"\x03\x00"
_TAIL_BYTES = len(_LAST_BLOCK) + 8
_BLOCK_BYTES = 1 << 20

# CRC-32's polynomial, and 1 and x^8; the bit of x^0 is the highest one.
_POLYNOMIAL, _ONE, _X8 = 0xEDB88320, 1 << 31, 1 << 23


def packed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a gzip file of these bytes, one that can be joined: its blocks end at a whole byte."""
    yield _HEADER
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    checksum = length = 0
    for block in blocks:
        checksum = zlib.crc32(block, checksum)
        length += len(block)
        yield compressor.compress(block)
    yield compressor.flush(zlib.Z_SYNC_FLUSH)
    yield _trailer(checksum, length)


def joined(parts: Sequence[str]) -> Iterator[bytes]:
    """The bytes of one gzip file that unpacks to what the parts unpack to, one after the other.

    Args:
      parts: files of what `packed` gives, each of less than 4 GiB unpacked.

    Raises:
      InputError: a part was not written so.
    """
    yield _HEADER
    checksum = length = 0
    for part in parts:
        size = tf.io.gfile.stat(part).length
        with tf.io.gfile.GFile(part, "rb") as file:
            header = file.read(len(_HEADER))
            left = size - len(_HEADER) - _TAIL_BYTES
            while left > 0:
                block = file.read(min(left, _BLOCK_BYTES))
                if not block:
                    break
                left -= len(block)
                yield block
            tail = file.read()
        if left or header != _HEADER or len(tail) != _TAIL_BYTES or tail[:2] != _LAST_BLOCK:
            raise InputError(f"{part}: not as it was written; delete it and run the same command again")
        part_length = int.from_bytes(tail[6:], "little")
        checksum = combined(checksum, int.from_bytes(tail[2:6], "little"), part_length)
        length += part_length
    yield _trailer(checksum, length)


def _trailer(checksum: int, length: int) -> bytes:
    return _LAST_BLOCK + checksum.to_bytes(4, "little") + (length & 0xFFFFFFFF).to_bytes(4, "little")


def combined(first: int, second: int, second_length: int) -> int:
    """CRC-32 of two byte strings together, from the CRC-32 of each and the second's length in bytes.

    A CRC is the remainder of a polynomial, so appending n bytes multiplies the first one by x^(8n).
    """
    power, square = _ONE, _X8
    while second_length:
        if second_length & 1:
            power = _product(power, square)
        square = _product(square, square)
        second_length >>= 1
    return _product(first, power) ^ second


def _product(a: int, b: int) -> int:
    """Of two polynomials over GF(2), modulo CRC-32's."""
    result = 0
    while a:
        if a & _ONE:
            result ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return result
