"""Text to sentences.

sentencex, the splitter of the Wikimedia foundation, does the work; its rules are those of English.
"""

import functools
import re
from collections.abc import Callable

from data_gen.libraries import load

_BLANK_LINE = re.compile(r"\n\s*\n")


@functools.cache
def _segment() -> Callable[[str, str], list[str]]:
    return load("sentencex").segment


def split_sentences(text: str) -> list[str]:
    """The sentences of a text.

    Nothing is lost but white space: runs of it, line ends among them, become one space. A blank line ends a sentence.

    Args:
        text: str, any length, without lone surrogates.

    Returns:
        list of str, stripped, none empty.

    Raises:
        InputError: sentencex is not installed.
    """
    segment = _segment()
    sentences = []
    for paragraph in _BLANK_LINE.split(text):
        # Single spaces also keep the library from a panic: looking back over white space of several bytes
        # (U+2028, U+3000) before an initial, it cuts within a character.
        line = " ".join(paragraph.split())
        try:
            found = segment("en", line)
        except BaseException as error:
            # a panic of the compiled library is no Exception; a paragraph left whole is better than a dead worker
            if type(error).__name__ != "PanicException":
                raise
            found = [line]
        sentences += filter(None, map(str.strip, found))
    return sentences
