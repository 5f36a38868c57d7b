"""Reads text files from any tf.io.gfile path, and decompresses files whose names end in .gz, .bz2 or .xz."""

import bz2
import contextlib
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import tensorflow as tf

from bert_tf.core.errors import InputError

_UNREADABLE = (".zst", ".zip", ".7z", ".lz4", ".br")
_OPENERS: dict[str, Callable] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@contextlib.contextmanager
def open_binary(path: str) -> Iterator[BinaryIO]:
    """Opens a file for reading and decompresses it on the fly if its name ends in .gz, .bz2 or .xz. A compressed file
    is read sequentially; a plain file supports seeking.
    `path`: any tf.io.gfile path.
    Yields a reader."""
    if path.lower().endswith(_UNREADABLE):
        raise InputError(f"{path}: unsupported compression; compress as .gz, .bz2 or .xz, or give plain text")
    opener = _opener_of(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        if opener is None:
            yield file
            return
        try:
            with opener(file) as text:
                yield text
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise InputError(
                f"{path}: is truncated or damaged, or its format does not match its suffix ({error}); "
                "make or fetch the file again, or rename it if it is not compressed"
            ) from error


def is_compressed(path: str) -> bool:
    """Returns whether `open_binary` decompresses the file."""
    return _opener_of(path) is not None


def plain_name(path: str) -> str:
    """Returns the path without the extension of a compression."""
    return os.path.splitext(path)[0] if is_compressed(path) else path


def _opener_of(path: str) -> Callable | None:
    return next((opener for suffix, opener in _OPENERS.items() if path.lower().endswith(suffix)), None)
