"""The original's text normalization as a table with one entry per code point.

Paper: section 3 ("Input/Output Representations", WordPiece).

The original's basic tokenizer drops control characters, and separates CJK ideographs and punctuation. For an uncased
vocabulary, it also lower-cases text and strips accents; other projects also do one of these two alone. All of this
depends on single code points, except for two rules: the final sigma, and the canonical order of the few spacing marks
that have a combining class. A table therefore gives the same result in Python, in a tf.function and in a served graph.
The kind of an entry tells whether one of the two rules concerns the code point. `word_splitting` applies these rules.

An entry is `kind << KIND_SHIFT | code point`. The table is stored for Unicode 14.0 in `unicode_table.npz`, so that
the result does not depend on the Python version. `benchmarks/build_unicode_table.py` builds the file.
"""

import pathlib
from typing import NamedTuple

import numpy as np

NUM_CODE_POINTS = 0x110000
KIND_SHIFT = 21
CODE_POINT_MASK = (1 << KIND_SHIFT) - 1
# The order matters: the first two kinds form words, and the kinds from DROPPED on need further processing.
IN_WORD, ALONE, SPACE, DROPPED, BOUNDARY, ORDERED_MARK, CAPITAL_SIGMA, EXPANDS = range(8)
SMALL_SIGMA, FINAL_SIGMA = 0x3C3, 0x3C2
OTHER, CASED, IGNORED = 0, 1, 2
PATH = pathlib.Path(__file__).with_suffix(".npz")


class Table(NamedTuple):
    """The arrays that the graph looks up."""

    # int32 [0x110000], the entry of each code point. An entry of kind EXPANDS contains the index of a row of
    # `expansions` instead of a code point.
    entries: np.ndarray
    # int32 [rows, widest], the entries of each expansion; entries of kind DROPPED fill up short rows
    expansions: np.ndarray
    marks: np.ndarray  # int32 [marks], the code points of kind ORDERED_MARK, ascending
    mark_classes: np.ndarray  # int32 [marks], the canonical combining class of each mark


def entry(kind: int, value: int = 0) -> int:
    """Returns an entry of this kind; `value` is a code point, or the index of a row of the expansions."""
    return kind << KIND_SHIFT | value


def name_of_rules(lower_case: bool, strip_accents: bool) -> str:
    """Returns the prefix of the names of the arrays for these rules."""
    return ("lower" if lower_case else "keep") + ("_strip" if strip_accents else "")


def load(lower_case: bool, strip_accents: bool) -> Table:
    rules = name_of_rules(lower_case, strip_accents)
    with np.load(PATH) as file:
        kinds, expansions = file[f"{rules}_kinds"].astype(np.int32), file[f"{rules}_expansions"]
        values = np.arange(NUM_CODE_POINTS, dtype=np.int32) + file[f"{rules}_differences"]
        marks, mark_classes = file["marks"], file["mark_classes"]
    return Table(kinds << KIND_SHIFT | values, expansions, marks, mark_classes)


def load_sigma_context() -> np.ndarray:
    """Reads the role of each code point before or after a capital sigma, uint8 [0x110000]. A capital sigma becomes a
    final sigma if the nearest character before it is CASED, and the nearest character after it is not CASED. Both
    searches skip characters that are IGNORED: the case-ignorable code points (Unicode 14.0, section 3.13), and the code
    points that normalization drops. All other code points are OTHER."""
    with np.load(PATH) as file:
        return file["sigma_context"]
