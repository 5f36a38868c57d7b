"""Reads text files that may be compressed (gzip, bzip2 or xz, by suffix) from any tf.io.gfile path."""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import BinaryIO

import tensorflow as tf

from bert_tf.core.errors import InputError

_BLOCK = 1 << 18  # bytes per read from the file system
_BUFFER = 1 << 20  # bytes of buffered text
_UNREADABLE = (".zst", ".zip", ".7z", ".lz4", ".br")


def open_binary(path: str, buffer_bytes: int = _BUFFER) -> BinaryIO:
    """Opens a file for reading and decompresses it on the fly if its name ends in .gz, .bz2 or .xz.

    Memory stays at a few MiB for files of any size. Files of several members (`cat a.gz b.gz`, pbzip2, pixz)
    are read completely. A plain file supports seeking, a compressed one does not.

    Args:
      path: any tf.io.gfile path.
      buffer_bytes: bytes of text to read at a time.

    Returns:
      A buffered reader; iteration yields lines with their line ends. Reading raises InputError, which names the
      file, if a compressed file is truncated, damaged or followed by other data.

    Raises:
      InputError: the suffix denotes an unsupported compression.
    """
    if path.lower().endswith(_UNREADABLE):
        raise InputError(f"{path}: unsupported compression; compress as .gz, .bz2 or .xz, or give plain text")
    raw: io.RawIOBase = _GFileStream(path)
    decoder = _decoder_of(path)
    if decoder:
        raw = _Decompressed(path, raw, decoder)
    return io.BufferedReader(raw, buffer_bytes)


def is_compressed(path: str) -> bool:
    """Returns whether `open_binary` decompresses the file."""
    return _decoder_of(path) is not None


class _GzipDecoder:
    """zlib's decoder with the interface that bz2's and lzma's share."""

    def __init__(self):
        self._decoder = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)  # 16: gzip's header and checksum

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._decoder.decompress(self._decoder.unconsumed_tail + data, max_length)

    @property
    def needs_input(self) -> bool:
        return not self._decoder.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data


def _new_xz_decoder() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ)


_DECODERS: dict[str, Callable] = {".gz": _GzipDecoder, ".bz2": bz2.BZ2Decompressor, ".xz": _new_xz_decoder}


def _decoder_of(path: str) -> Callable | None:
    return next((decoder for suffix, decoder in _DECODERS.items() if path.lower().endswith(suffix)), None)


class _GFileStream(io.RawIOBase):
    """A tf.io.gfile file as a raw stream; GFile itself lacks readinto, readable and other methods."""

    def __init__(self, path: str):
        super().__init__()
        self._path = path
        self._file = tf.io.gfile.GFile(path, "rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        # GFile opens a file at the first read, and before that it cannot seek to the end.
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._file.tell(), io.SEEK_END: 0}[whence]
        if whence == io.SEEK_END:
            start = tf.io.gfile.stat(self._path).length
        self._file.seek(start + offset)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _Decompressed(io.RawIOBase):
    """The decompressed contents of a stream.

    The standard library's file classes silently stop at a damaged later member of a bzip2 or xz file, and accept
    an empty .gz as empty text. This class raises an error for both.
    """

    def __init__(self, path: str, raw: io.RawIOBase, new_decoder: Callable):
        super().__init__()
        self._path, self._raw, self._new_decoder = path, raw, new_decoder
        self._decoder = new_decoder()
        # gzip and xz allow zero bytes as padding between members, bzip2 does not.
        self._padding = b"" if new_decoder is bz2.BZ2Decompressor else b"\0"
        self._rest = b""  # bytes that were read and belong to the next member
        self._failed = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._read(len(buffer)) if len(buffer) else b""
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()

    def _read(self, size: int) -> bytes:
        while True:
            if self._decoder.eof and not self._next_member():
                return b""
            block, at_end = b"", False
            if self._decoder.needs_input:
                block, self._rest = self._rest or self._raw.read(_BLOCK), b""
                at_end = not block
            try:
                data = self._decoder.decompress(block, size)
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                raise InputError(
                    f"{self._path}: is damaged, or not of the format of its suffix ({error}); "
                    "make or fetch the file again, or rename it if it is not compressed"
                ) from error
            if data:
                return data
            if at_end and not self._decoder.eof:
                raise InputError(f"{self._path}: ends in the middle of its compressed data; make or fetch it again")

    def _next_member(self) -> bool:
        """Advances to the next member; returns False at the end of the file."""
        rest = self._decoder.unused_data
        while not (rest := rest.lstrip(self._padding) if self._padding else rest):
            rest = self._raw.read(_BLOCK)
            if not rest:
                return False
        self._decoder, self._rest = self._new_decoder(), rest
        return True
