import hashlib
import re

import pytest

from bert_tf.core import vocabulary_file
from tests.kit import refused

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ä"]


@pytest.mark.parametrize("text", ["{}\n", "{}", "{}\r\n"])
def test_line_ends_do_not_change_a_vocabulary(tmp_path, text):
    path = tmp_path / "vocab.txt"
    end = "\r\n" if "\r" in text else "\n"
    path.write_bytes(text.format(end.join(TOKENS)).encode())
    assert vocabulary_file.read_tokens(str(path)) == TOKENS
    canonical = "".join(f"{token}\n" for token in TOKENS).encode()
    assert vocabulary_file.tokens_sha256(TOKENS) == hashlib.sha256(canonical).hexdigest()


@pytest.mark.parametrize(
    "content, message",
    [
        (None, ": no such file; give a vocabulary, such as vocab.txt"),
        (b"\xef\xbb\xbf[PAD]\na\n", ": starts with a byte order mark (BOM); save the vocabulary as UTF-8 without BOM"),
        (b"[PAD]\n\xe4\n", ", line 2: not UTF-8; save the vocabulary as UTF-8"),
    ],
)
def test_unreadable_vocabulary_error_names_remedy(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    if content:
        path.write_bytes(content)
    refused(f"^{re.escape(f'{path}{message}')}$", vocabulary_file.read_tokens, str(path))
