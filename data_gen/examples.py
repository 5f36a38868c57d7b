"""One work unit: documents as ids -> rows -> records.

Paper: section 3.1 and appendix A.2.

Letters: R rows, S pieces of a row.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.text import masking
from data_gen import unit_files
from data_gen.sentence_pairs import Rows, Window, sample_pairs, sample_segments
from data_gen.settings import GeneratorSettings
from data_gen.token_blocks import Block, load_window
from data_gen.work_units import Unit
from tfrecords import records, schema, writer

# Tell the units' streams of numbers, for rows and for their order, apart from others of the same seed.
_ROWS, _ORDER = 1, 2
# so many rows at a time stay in the processor's cache
_ROWS_PER_STEP = 2048


@dataclasses.dataclass(frozen=True)
class Pieces:
    """What rows need to know of the vocabulary: two ids, and how to mask."""

    cls_id: int
    sep_id: int
    rule: masking.MaskingRule


@dataclasses.dataclass(frozen=True)
class UnitTask:
    """A unit, the blocks of its window (its own at `own_block`), and where its records go."""

    unit: Unit
    window: Sequence[Block]
    own_block: int
    settings: GeneratorSettings
    pieces: Pieces
    job: str
    folder: str

    @property
    def path(self) -> str:
        """The file of the unit's records; `unit_files` writes and reads it."""
        return f"{self.folder}/{self.unit.name}.tfrecord"

    @property
    def result_path(self) -> str:
        """The file that says that the unit is done, and holds its facts."""
        return f"{self.folder}/{self.unit.name}.json"


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a unit's records hold: to be added up.

    Attributes:
      examples: rows.
      bytes: size of their records.
      pieces: pieces of all rows, without padding.
      predictions: masked positions of all rows.
      random_next: rows whose B is a random sentence.
    """

    examples: int = 0
    bytes: int = 0
    pieces: int = 0
    predictions: int = 0
    random_next: int = 0

    def __add__(self, other: "Facts") -> "Facts":
        """The facts of both together."""
        mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return Facts(*(a + b for a, b in zip(mine, others, strict=True)))


def features_of(settings: GeneratorSettings) -> tuple[schema.Feature, ...]:
    """What the records hold under these settings."""
    return schema.pretraining_features(
        settings.max_seq_length,
        settings.max_predictions_per_seq,
        masked=settings.masks,
        next_sentence=settings.objective == "mlm_nsp",
    )


def make_unit(task: UnitTask) -> tuple[UnitTask, Facts]:
    """Writes the records of a unit, pass by pass, in random order; they are on disk when this returns."""
    settings, unit = task.settings, task.unit
    window = load_window(task.window, task.job)
    first = sum(block.documents for block in task.window[: task.own_block])
    documents = range(first, first + unit.documents)
    rng = _random_numbers(task, _ROWS)
    facts, made = Facts(), []
    for _ in range(unit.first_pass, unit.last_pass):
        for columns in example_columns(window, documents, settings, task.pieces, rng):
            facts += _facts_of(columns)
            made += records.serialize(columns, features_of(settings))
    size = unit_files.write(task.path, made, _random_numbers(task, _ORDER))
    facts += Facts(bytes=size)
    writer.write_text(task.result_path, json.dumps(dataclasses.asdict(facts)))
    return task, facts


def _random_numbers(task: UnitTask, use: int) -> np.random.Generator:
    """A stream of a unit's own: none depends on what was made before it."""
    seeds = np.random.SeedSequence((task.settings.random_seed, use, task.unit.block, task.unit.first_pass))
    return np.random.Generator(np.random.PCG64(seeds))


def read_facts(task: UnitTask) -> Facts | None:
    """The facts of a unit that an earlier run finished; None if it did not."""
    if not tf.io.gfile.exists(task.result_path) or not unit_files.exist(task.path):
        return None
    with tf.io.gfile.GFile(task.result_path) as file:
        return Facts(**json.load(file))


def example_columns(
    window: Window, documents: range, settings: GeneratorSettings, pieces: Pieces, rng: np.random.Generator
) -> Iterator[dict[str, np.ndarray]]:
    """One pass over documents.

    Args:
      window: holds the documents, and those that random next sentences come from.
      documents: which of the window's documents to go through.
      settings: lengths, objective and masking.
      pieces: see `Pieces`.
      rng: source of randomness.

    Yields:
      Features of some rows, [R, length] each, as `features_of(settings)` says.
    """
    sample = sample_pairs if settings.objective == "mlm_nsp" else sample_segments
    rows = sample(window, documents, settings.max_seq_length, settings.short_seq_prob, rng)
    for start in range(0, len(rows.start_a), _ROWS_PER_STEP):
        part = Rows(*(column[start : start + _ROWS_PER_STEP] for column in dataclasses.astuple(rows)))
        columns, lengths, is_text = fill_rows(window.tokens, part, settings.max_seq_length, pieces)
        if settings.masks:
            masked = masking.mask(columns["input_ids"], lengths, is_text, pieces.rule, rng)
            columns |= {
                "input_ids": masked.input_ids,
                "masked_lm_positions": masked.positions,
                "masked_lm_ids": masked.labels,
                "masked_lm_weights": masked.weights,
            }
        if settings.objective == "mlm_nsp":
            columns["next_sentence_labels"] = part.is_random_next[:, None].astype(np.uint8)
        yield columns


def fill_rows(
    tokens: np.ndarray, rows: Rows, max_seq_length: int, pieces: Pieces
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Builds [CLS] A [SEP] B [SEP], or [CLS] A [SEP] where B has length 0, padded with zeros.

    Args:
      tokens: int [T], what the rows' ranges count in.
      rows: R segments or pairs of them.
      max_seq_length: S.
      pieces: see `Pieces`.

    Returns:
      `input_ids` int32 [R, S], `input_mask` and `segment_ids` uint8 [R, S]; the rows' lengths int32 [R]; and
      bool [R, S], True on the pieces of A and B.
    """
    column = np.arange(max_seq_length, dtype=np.int32)
    length_a = rows.length_a.astype(np.int32)[:, None]
    length_b = rows.length_b.astype(np.int32)[:, None]
    lengths = length_a + length_b + 2 + (length_b > 0)
    in_b = (column >= length_a + 2) & (column < lengths)
    shift_a = (rows.start_a - 1).astype(np.int32)[:, None]
    shift_b = rows.start_b.astype(np.int32)[:, None] - length_a - 2
    source = column + np.where(in_b, shift_b, shift_a)
    input_ids = tokens.take(source, mode="clip").astype(np.int32)
    in_row = column < lengths
    is_sep = (column == length_a + 1) | (column == lengths - 1)
    input_ids[is_sep] = pieces.sep_id
    input_ids[:, 0] = pieces.cls_id
    input_ids *= in_row
    is_text = in_row & ~is_sep
    is_text[:, 0] = False
    columns = {"input_ids": input_ids, "input_mask": in_row.view(np.uint8), "segment_ids": in_b.view(np.uint8)}
    return columns, lengths[:, 0], is_text


def _facts_of(columns: dict[str, np.ndarray]) -> Facts:
    return Facts(
        examples=len(columns["input_ids"]),
        pieces=int(columns["input_mask"].sum()),
        predictions=int(columns["masked_lm_weights"].sum()) if "masked_lm_weights" in columns else 0,
        random_next=int(columns["next_sentence_labels"].sum()) if "next_sentence_labels" in columns else 0,
    )
