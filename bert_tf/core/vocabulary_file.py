"""Reads the tokens of a vocabulary file, and computes a vocabulary's SHA-256.

Line ends and white space around a token do not change a vocabulary, so the SHA-256 does not include them.
"""

import hashlib
from collections.abc import Sequence

from bert_tf.core.errors import InputError

_BOM = b"\xef\xbb\xbf"


def read_tokens(path: str) -> list[str]:
    """Reads a file with one token per line, in the order of the ids. The file may lack special tokens."""
    import tensorflow as tf

    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise InputError(f"{path}: no such file; give a vocabulary, such as vocab.txt")
    with tf.io.gfile.GFile(path, "rb") as file:
        lines = file.read().split(b"\n")
    if lines[0].startswith(_BOM):
        # Other programs would read the mark as part of the first token, so accepting it here would only hide the fault.
        raise InputError(f"{path}: starts with a byte order mark (BOM); save the vocabulary as UTF-8 without BOM")
    if not lines[-1].strip():
        lines.pop()
    tokens = []
    for number, line in enumerate(lines, 1):
        try:
            tokens.append(line.decode("utf-8").strip())
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, line {number}: not UTF-8; save the vocabulary as UTF-8") from error
    return tokens


def tokens_sha256(tokens: Sequence[str]) -> str:
    """Returns the SHA-256, in hexadecimal, of a text with one token per line."""
    return hashlib.sha256("".join(f"{token}\n" for token in tokens).encode()).hexdigest()
