"""Builds `bert_tf/text/unicode_table.npz` with Python's `unicodedata`, which must be version 14.0.0.

python -m benchmarks.build_unicode_table
"""

import itertools
import unicodedata

import numpy as np

from bert_tf.text.unicode_table import (
    ALONE,
    BOUNDARY,
    CAPITAL_SIGMA,
    CASED,
    DROPPED,
    EXPANDS,
    IGNORED,
    IN_WORD,
    NUM_CODE_POINTS,
    ORDERED_MARK,
    OTHER,
    PATH,
    SPACE,
    entry,
    name_of_rules,
)

UNICODE_VERSION = "14.0.0"
_CJK_RANGES = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def normalize_character(character: str, lower_case: bool, strip_accents: bool) -> list[tuple[int, str]]:
    """Normalizes one character as the original's basic tokenizer does; returns pairs of kind and character.

    The original either lower-cases and strips accents, or does neither. With one of the two alone, the result is that
    of transformers' `BasicTokenizer`.

    A dropped character gives no pair. But if marks cannot be reordered across a dropped character, this character gives
    a pair of kind BOUNDARY.
    """
    if character in "\t\n\r" or unicodedata.category(character) == "Zs":
        return [(SPACE, " ")]
    if character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf"):
        return []
    if lower_case and character == "\N{GREEK CAPITAL LETTER SIGMA}":
        return [(CAPITAL_SIGMA, "\N{GREEK SMALL LETTER SIGMA}")]
    text = character.lower() if lower_case else character
    if not strip_accents:
        return [_with_kind(c, character) for c in text]
    result = []
    for c in unicodedata.normalize("NFD", text):
        if unicodedata.category(c) != "Mn":
            result.append((ORDERED_MARK, c) if unicodedata.combining(c) else _with_kind(c, character))
        elif not unicodedata.combining(c):
            result.append((BOUNDARY, c))
    kinds = {kind for kind, _ in result}
    # Any kept character that is not a mark is itself a boundary, so adjacent BOUNDARY entries are redundant.
    return result if kinds <= {BOUNDARY, ORDERED_MARK} else [pair for pair in result if pair[0] != BOUNDARY]


def _with_kind(result: str, source: str) -> tuple[int, str]:
    if result.isspace():
        return SPACE, " "
    is_ideograph = any(low <= ord(source) <= high for low, high in _CJK_RANGES)
    is_punctuation = result in _ASCII_PUNCTUATION or unicodedata.category(result).startswith("P")
    return (ALONE if is_ideograph or is_punctuation else IN_WORD), result


def _sigma_context(character: str) -> int:
    # str.lower() implements the rule, so its results show the role.
    if not normalize_character(character, lower_case=False, strip_accents=False):
        return IGNORED
    if f"{character}Σ".lower().endswith("ς"):
        return CASED
    return IGNORED if f"A{character}Σ".lower().endswith("ς") else OTHER


def _build() -> None:
    if unicodedata.unidata_version != UNICODE_VERSION:
        raise SystemExit(f"unicodedata is {unicodedata.unidata_version}; the table is for {UNICODE_VERSION}")
    arrays = {}
    for rules in itertools.product((False, True), repeat=2):
        arrays |= {f"{name_of_rules(*rules)}_{name}": array for name, array in _table_arrays(*rules).items()}
    marks = [
        c for c in range(NUM_CODE_POINTS) if unicodedata.combining(chr(c)) and unicodedata.category(chr(c)) != "Mn"
    ]
    arrays["marks"] = np.array(marks, np.int32)
    arrays["mark_classes"] = np.array([unicodedata.combining(chr(c)) for c in marks], np.int32)
    arrays["sigma_context"] = np.array(
        [0 if 0xD800 <= c <= 0xDFFF else _sigma_context(chr(c)) for c in range(NUM_CODE_POINTS)], np.uint8
    )
    np.savez_compressed(PATH, **arrays)


def _table_arrays(lower_case: bool, strip_accents: bool) -> dict[str, np.ndarray]:
    kinds, values = np.zeros(NUM_CODE_POINTS, np.uint8), np.zeros(NUM_CODE_POINTS, np.int32)
    expansions = []
    for code_point in range(NUM_CODE_POINTS):
        is_surrogate = 0xD800 <= code_point <= 0xDFFF
        row = [] if is_surrogate else normalize_character(chr(code_point), lower_case, strip_accents)
        if len(row) > 1:
            kinds[code_point], values[code_point] = EXPANDS, len(expansions)
            expansions.append([entry(kind, ord(c)) for kind, c in row])
        elif row:
            kinds[code_point], values[code_point] = row[0][0], ord(row[0][1])
        else:
            kinds[code_point] = DROPPED
    widest = max(map(len, expansions), default=1)
    rows = [row + [entry(DROPPED)] * (widest - len(row)) for row in expansions]
    return {
        "kinds": kinds,
        # Differences compress far better than values.
        "differences": values - np.arange(NUM_CODE_POINTS, dtype=np.int32),
        "expansions": np.array(rows, np.int32).reshape(-1, widest),
    }


if __name__ == "__main__":
    _build()
