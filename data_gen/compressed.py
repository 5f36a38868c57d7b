"""Reads text files from any tf.io.gfile path, and decompresses files whose names end in .gz, .bz2 or .xz."""

import bz2
import contextlib
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import tensorflow as tf

from bert_tf.core.errors import InputError

_BLOCK = 1 << 18  # bytes per read from the file system
_BUFFER = 1 << 20  # bytes of buffered text
_UNREADABLE = (".zst", ".zip", ".7z", ".lz4", ".br")
_DECODERS: dict[str, Callable] = {
    ".gz": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),  # 16 selects gzip's header and checksum
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
}


@contextlib.contextmanager
def open_binary(path: str) -> Iterator[BinaryIO]:
    """Opens a file for reading and decompresses it on the fly if its name ends in .gz, .bz2 or .xz.

    Memory stays at a few MiB for files of any size. All members of a compressed file are read, because `cat a.gz b.gz`,
    pbzip2 and pixz write several members. A plain file supports seeking; a compressed file does not.

    Args:
      path: any tf.io.gfile path.

    Yields:
      A reader. If a compressed file is truncated, damaged or followed by other data, reading raises an InputError that
      names the file.

    Raises:
      InputError: the suffix denotes an unsupported compression.
    """
    if path.lower().endswith(_UNREADABLE):
        raise InputError(f"{path}: unsupported compression; compress as .gz, .bz2 or .xz, or give plain text")
    decoder = _decoder_of(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        yield io.BufferedReader(_Decompressed(path, file, decoder), _BUFFER) if decoder else file


def is_compressed(path: str) -> bool:
    """Returns whether `open_binary` decompresses the file."""
    return _decoder_of(path) is not None


def _decoder_of(path: str) -> Callable | None:
    return next((decoder for suffix, decoder in _DECODERS.items() if path.lower().endswith(suffix)), None)


class _Decompressed(io.RawIOBase):
    """A stream of the decompressed contents of a file.

    The standard library's file classes silently stop at a damaged later member of a bzip2 or xz file, and accept
    an empty .gz file as empty text. This class raises an error in both cases.
    """

    def __init__(self, path: str, file: tf.io.gfile.GFile, new_decoder: Callable):
        super().__init__()
        self._path, self._file, self._new_decoder = path, file, new_decoder
        self._decoder = new_decoder()
        # gzip and xz allow zero bytes as padding between members, but bzip2 does not.
        self._padding = b"" if new_decoder is bz2.BZ2Decompressor else b"\0"
        self._rest = b""  # bytes that were read and belong to the next member

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._read(len(buffer)) if len(buffer) else b""
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        while True:
            if self._decoder.eof and not self._next_member():
                return b""
            # zlib's decoder returns the input that it has not used yet; the other decoders keep such input.
            block = getattr(self._decoder, "unconsumed_tail", b"")
            needs_input = getattr(self._decoder, "needs_input", not block)
            if needs_input:
                block, self._rest = self._rest or self._file.read(_BLOCK), b""
            try:
                data = self._decoder.decompress(block, size)
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                raise InputError(
                    f"{self._path}: is damaged, or its format does not match its suffix ({error}); "
                    "make or fetch the file again, or rename it if it is not compressed"
                ) from error
            if data:
                return data
            if needs_input and not block and not self._decoder.eof:
                raise InputError(f"{self._path}: ends in the middle of its compressed data; make or fetch it again")

    def _next_member(self) -> bool:
        """Advances to the next member; returns False at the end of the file."""
        rest = self._decoder.unused_data
        while not (rest := rest.lstrip(self._padding) if self._padding else rest):
            rest = self._file.read(_BLOCK)
            if not rest:
                return False
        self._decoder, self._rest = self._new_decoder(), rest
        return True
