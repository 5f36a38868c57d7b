"""Splits text into sentences with the rules of sentencex, the Wikimedia Foundation's sentence splitter."""

import functools
import importlib
import re
import types

from bert_tf.core.errors import InputError

ENGLISH = "en"
_BLANK_LINE = re.compile(r"\n\s*\n")


@functools.cache
def load(name: str) -> types.ModuleType:
    """Imports a library of the extra `text`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"{name} is not installed, but raw text needs it: pip install sentencex mwparserfromhell, or give text "
            "with one sentence per line"
        ) from error


def split_sentences(text: str, language: str = ENGLISH) -> list[str]:
    """Splits a text without lone surrogates into sentences, which are stripped and not empty. No text is lost except
    white space: each run of white space, including line ends, becomes one space. A blank line ends a sentence. If the
    library has no rules for the language, it takes the rules of a related language or English."""
    segment = load("sentencex").segment
    sentences = []
    for paragraph in _BLANK_LINE.split(text):
        # Single spaces also prevent a panic of the library. At an initial, the library looks back over white space, and
        # would split within a white-space character that has several bytes (U+2028, U+3000).
        line = " ".join(paragraph.split())
        try:
            segments = segment(language, line)
        except BaseException as error:
            # A panic of the compiled library is a BaseException, but not an Exception. Keep the paragraph as one
            # sentence, so that the worker survives.
            if type(error).__name__ != "PanicException":
                raise
            segments = [line]
        sentences += filter(None, map(str.strip, segments))
    return sentences
