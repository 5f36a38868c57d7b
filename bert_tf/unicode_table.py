"""The original's text normalisation as a table from each code point to a short sequence.

Paper: section 3 ("Input/Output Representations", WordPiece). What the original's basic tokenizer
does to text (drop controls, set CJK ideographs and punctuation apart, lower-case, strip accents)
depends, but for the final sigma, on one code point at a time. So it is a table, and the table is
the same in Python, in a tf.function and in a served graph. One thing it leaves out: spacing combining
marks that stand next to each other out of canonical order (U+302E before U+1B44) are not reordered.

The table is frozen to Unicode 14.0 in `unicode_table.npz`, so that every Python version tokenizes
alike; `python -m bert_tf.unicode_table` makes it anew on a Python with `unicodedata` 14.0.0.
"""

import pathlib
import unicodedata

import numpy as np

UNICODE_VERSION = "14.0.0"
NUM_CODE_POINTS = 0x110000
SPACE = 0x20
CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2
OTHER, CASED, IGNORED = 0, 1, 2
_PATH = pathlib.Path(__file__).with_suffix(".npz")
# Stands for "a space" where the file stores differences to the code point.
_SPACE_MARK = np.iinfo(np.int32).max
_CJK_RANGES = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def normalize_character(character: str, do_lower_case: bool) -> str:
    """What the original's basic tokenizer makes of one character, spaces set where it splits."""
    if character in "\t\n\r" or unicodedata.category(character) == "Zs":
        return " "
    if character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf"):
        return ""
    result = character
    if do_lower_case:
        decomposed = unicodedata.normalize("NFD", character.lower())
        result = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
    pieces = (" " if c.isspace() else f" {c} " if _is_punctuation(c) else c for c in result)
    result = "".join(pieces)
    if any(low <= ord(character) <= high for low, high in _CJK_RANGES):
        result = f" {result} "
    return result


def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")


def load(do_lower_case: bool) -> tuple[np.ndarray, np.ndarray]:
    """The table as a ragged array.

    Args:
      do_lower_case: lower-case and strip accents.

    Returns:
      `row_splits` int32 [0x110000 + 1] and `values` int32: row c holds the code points that c becomes.
    """
    case = "lower" if do_lower_case else "keep"
    with np.load(_PATH) as file:
        lengths, differences = file[f"{case}_lengths"], file[f"{case}_differences"]
    row_splits = np.zeros(NUM_CODE_POINTS + 1, np.int32)
    np.cumsum(lengths, out=row_splits[1:])
    sources = np.repeat(np.arange(NUM_CODE_POINTS, dtype=np.int32), lengths)
    with np.errstate(over="ignore"):
        values = np.where(differences == _SPACE_MARK, SPACE, sources + differences)
    return row_splits, values.astype(np.int32)


def load_sigma_context() -> np.ndarray:
    """What each code point means to a capital sigma beside it, uint8 [0x110000].

    OTHER ends the search for a cased neighbour, CASED is one, IGNORED is looked past: the
    case-ignorable (Unicode 14.0, section 3.13) and what the normalisation drops beforehand.
    """
    with np.load(_PATH) as file:
        return file["sigma_context"]


def _sigma_context(character: str) -> int:
    # str.lower() applies the rule itself, so it is asked, not written again
    if normalize_character(character, do_lower_case=False) == "":
        return IGNORED
    if f"{character}Σ".lower().endswith("ς"):
        return CASED
    return IGNORED if f"A{character}Σ".lower().endswith("ς") else OTHER


def _build() -> None:
    if unicodedata.unidata_version != UNICODE_VERSION:
        raise SystemExit(f"unicodedata is {unicodedata.unidata_version}; the table is for {UNICODE_VERSION}")
    arrays = {}
    for case, lower in (("lower", True), ("keep", False)):
        rows = ["" if 0xD800 <= c <= 0xDFFF else normalize_character(chr(c), lower) for c in range(NUM_CODE_POINTS)]
        lengths = np.array([len(row) for row in rows], np.uint8)
        values = np.array([ord(c) for row in rows for c in row], np.int32)
        sources = np.repeat(np.arange(NUM_CODE_POINTS, dtype=np.int32), lengths)
        arrays[f"{case}_lengths"] = lengths
        arrays[f"{case}_differences"] = np.where(values == SPACE, _SPACE_MARK, values - sources)
    arrays["sigma_context"] = np.array(
        [0 if 0xD800 <= c <= 0xDFFF else _sigma_context(chr(c)) for c in range(NUM_CODE_POINTS)], np.uint8
    )
    np.savez_compressed(_PATH, **arrays)


if __name__ == "__main__":
    _build()
