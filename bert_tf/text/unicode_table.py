"""The original's text normalization as a table with one entry per code point.

Paper: section 3 ("Input/Output Representations", WordPiece).

The original's basic tokenizer drops control characters, separates CJK ideographs and punctuation, lower-cases and
strips accents. All of this depends on single code points, except for two rules: the final sigma, and the canonical
order of the few spacing marks that have a combining class. A table therefore gives the same result in Python, in a
tf.function and in a served graph. The kind of an entry tells whether one of the two rules concerns the code point.
`word_splitting` applies these rules.

An entry is `kind << KIND_SHIFT | code point`. The table is stored for Unicode 14.0 in `unicode_table.npz`, so that
the result does not depend on the Python version. `python -m bert_tf.text.unicode_table` rebuilds the file if Python's
`unicodedata` is version 14.0.0.
"""

import pathlib
import unicodedata
from typing import NamedTuple

import numpy as np

UNICODE_VERSION = "14.0.0"
NUM_CODE_POINTS = 0x110000
KIND_SHIFT = 21
CODE_POINT_MASK = (1 << KIND_SHIFT) - 1
# The order matters: the first two kinds form words, and the kinds from DROPPED on need further processing.
IN_WORD, ALONE, SPACE, DROPPED, BOUNDARY, ORDERED_MARK, CAPITAL_SIGMA, EXPANDS = range(8)
SMALL_SIGMA, FINAL_SIGMA = 0x3C3, 0x3C2
OTHER, CASED, IGNORED = 0, 1, 2
_PATH = pathlib.Path(__file__).with_suffix(".npz")
_CJK_RANGES = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class Table(NamedTuple):
    """The arrays that the graph looks up.

    Attributes:
      entries: int32 [0x110000], the entry of each code point. An entry of kind EXPANDS contains the index of a row of
        `expansions` instead of a code point.
      expansions: int32 [rows, widest], the entries of each expansion; entries of kind DROPPED fill up short rows.
      marks: int32 [marks], the code points of kind ORDERED_MARK, ascending.
      mark_classes: int32 [marks], the canonical combining class of each mark.
    """

    entries: np.ndarray
    expansions: np.ndarray
    marks: np.ndarray
    mark_classes: np.ndarray


def normalize_character(character: str, do_lower_case: bool) -> list[tuple[int, str]]:
    """Normalizes one character as the original's basic tokenizer does; returns pairs of kind and character.

    A dropped character gives no pair. But if marks cannot be reordered across a dropped character, this character gives
    a pair of kind BOUNDARY.
    """
    if character in "\t\n\r" or unicodedata.category(character) == "Zs":
        return [(SPACE, " ")]
    if character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf"):
        return []
    if not do_lower_case:
        return [_with_kind(character, character)]
    if character == "\N{GREEK CAPITAL LETTER SIGMA}":
        return [(CAPITAL_SIGMA, "\N{GREEK SMALL LETTER SIGMA}")]
    result = []
    for c in unicodedata.normalize("NFD", character.lower()):
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


def entry(kind: int, value: int = 0) -> int:
    """Returns an entry of this kind; `value` is a code point, or the index of a row of the expansions."""
    return kind << KIND_SHIFT | value


def load(do_lower_case: bool) -> Table:
    """Reads the table for one value of do_lower_case."""
    case = "lower" if do_lower_case else "keep"
    with np.load(_PATH) as file:
        kinds, expansions = file[f"{case}_kinds"].astype(np.int32), file[f"{case}_expansions"]
        values = np.arange(NUM_CODE_POINTS, dtype=np.int32) + file[f"{case}_differences"]
        marks, mark_classes = file["marks"], file["mark_classes"]
    return Table(kinds << KIND_SHIFT | values, expansions, marks, mark_classes)


def load_sigma_context() -> np.ndarray:
    """Reads the role of each code point before or after a capital sigma, uint8 [0x110000].

    A capital sigma becomes a final sigma if the nearest character before it is CASED, and the nearest character after
    it is not CASED. Both searches skip characters that are IGNORED: the case-ignorable code points (Unicode 14.0,
    section 3.13), and the code points that normalization drops. All other code points are OTHER.
    """
    with np.load(_PATH) as file:
        return file["sigma_context"]


def _sigma_context(character: str) -> int:
    # str.lower() implements the rule, so its results show the role.
    if not normalize_character(character, do_lower_case=False):
        return IGNORED
    if f"{character}Σ".lower().endswith("ς"):
        return CASED
    return IGNORED if f"A{character}Σ".lower().endswith("ς") else OTHER


def _build() -> None:
    if unicodedata.unidata_version != UNICODE_VERSION:
        raise SystemExit(f"unicodedata is {unicodedata.unidata_version}; the table is for {UNICODE_VERSION}")
    arrays = {}
    for case, lower in (("lower", True), ("keep", False)):
        arrays |= {f"{case}_{name}": array for name, array in _table_arrays(lower).items()}
    marks = [
        c for c in range(NUM_CODE_POINTS) if unicodedata.combining(chr(c)) and unicodedata.category(chr(c)) != "Mn"
    ]
    arrays["marks"] = np.array(marks, np.int32)
    arrays["mark_classes"] = np.array([unicodedata.combining(chr(c)) for c in marks], np.int32)
    arrays["sigma_context"] = np.array(
        [0 if 0xD800 <= c <= 0xDFFF else _sigma_context(chr(c)) for c in range(NUM_CODE_POINTS)], np.uint8
    )
    np.savez_compressed(_PATH, **arrays)


def _table_arrays(do_lower_case: bool) -> dict[str, np.ndarray]:
    kinds, values = np.zeros(NUM_CODE_POINTS, np.uint8), np.zeros(NUM_CODE_POINTS, np.int32)
    expansions = []
    for code_point in range(NUM_CODE_POINTS):
        is_surrogate = 0xD800 <= code_point <= 0xDFFF
        row = [] if is_surrogate else normalize_character(chr(code_point), do_lower_case)
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
