"""Makes the examples of one work unit: turns documents of token ids into rows, and rows into serialized records.

Paper: section 3.1 and appendix A.2.

Letters: R rows, T tokens of a window.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core import storage
from bert_tf.jobs.job import Counts
from bert_tf.text import masking
from data_gen import unit_files
from data_gen.sentence_pairs import PairRows, Window, cut_blocks, join_documents, sample_pairs, sample_segments
from data_gen.settings import GeneratorSettings
from data_gen.token_blocks import TokenBlock, load_window
from data_gen.work_units import Unit
from tfrecords import records, schema

# Keys of a work unit's random streams: one for the rows, one for the order of the rows. Other modules use other keys.
_ROWS, _ORDER = 1, 2
# The arrays of a batch with this many rows stay in the processor's cache.
_ROWS_PER_STEP = 2048


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The ids of [CLS] and [SEP], the masking rule with the id of [MASK], and whether records have segment 1."""

    cls_id: int
    sep_id: int
    rule: masking.MaskingRule
    has_token_types: bool = True


@dataclasses.dataclass(frozen=True)
class UnitTask:
    """The task to make the records of a work unit."""

    unit: Unit  # the work unit
    # the blocks from which random next sentences are drawn, including the unit's own block
    window: Sequence[TokenBlock]
    own_block: int  # index of the unit's own block in `window`
    settings: GeneratorSettings
    special_tokens: SpecialTokens
    job: str
    folder: str  # folder for the unit's records

    @property
    def path(self) -> str:
        """The file with the unit's records, in the format of `unit_files`."""
        return f"{self.folder}/{self.unit.name}.tfrecord"

    @property
    def result_path(self) -> str:
        """The file that marks the unit as finished and contains its `UnitCounts`."""
        return f"{self.folder}/{self.unit.name}.json"


@dataclasses.dataclass(frozen=True)
class UnitCounts(Counts):
    """Counts of the records of one or several work units. The JSON object in `UnitTask.result_path` has the attributes'
    names as keys."""

    examples: int = 0  # number of rows
    bytes: int = 0  # total size of the records
    pieces: int = 0  # number of tokens, without padding
    predictions: int = 0  # number of masked positions
    random_next: int = 0  # number of rows whose segment B is random
    text: int = 0  # number of tokens in all passes that come from the unit's own documents, not from random segments B


def features_of(settings: GeneratorSettings) -> tuple[schema.Feature, ...]:
    return schema.pretraining_features(
        settings.max_seq_length,
        settings.max_predictions_per_seq,
        masked=settings.masks,
        next_sentence=settings.objective == "mlm_nsp",
    )


def make_unit(task: UnitTask) -> UnitCounts:
    """Makes the records of a unit, pass by pass, and writes them to disk in random order."""
    settings, unit = task.settings, task.unit
    window = load_window(task.window, task.job)
    first = sum(block.documents for block in task.window[: task.own_block])
    documents = range(first, first + unit.documents)
    rng = _random_numbers(task, _ROWS)
    counts, made = UnitCounts(), []
    for _ in range(unit.first_pass, unit.last_pass):
        for columns in example_columns(window, documents, settings, task.special_tokens, rng):
            counts += _counts_of(columns)
            if not task.special_tokens.has_token_types:
                columns["segment_ids"][:] = 0
            made += records.serialize(columns, features_of(settings))
        if settings.join_documents:
            counts += UnitCounts(text=1 - unit.documents)  # the [SEP] tokens between documents are not text
    counts += UnitCounts(bytes=unit_files.write(task.path, made, _random_numbers(task, _ORDER)))
    storage.write_json(task.result_path, counts)
    return counts


def _random_numbers(task: UnitTask, use: int) -> np.random.Generator:
    """Returns a random generator that depends only on the seed, the unit and the key `use`, not on earlier units."""
    seeds = np.random.SeedSequence((task.settings.random_seed, use, task.unit.block, task.unit.first_pass))
    return np.random.Generator(np.random.PCG64(seeds))


def read_counts(task: UnitTask) -> UnitCounts | None:
    """Returns the counts of a unit that an earlier run finished; None if the unit is unfinished."""
    if not tf.io.gfile.exists(task.result_path) or not unit_files.exist(task.path):
        return None
    with tf.io.gfile.GFile(task.result_path) as file:
        return UnitCounts(**json.load(file))


def example_columns(
    window: Window,
    documents: range,
    settings: GeneratorSettings,
    special_tokens: SpecialTokens,
    rng: np.random.Generator,
) -> Iterator[dict[str, np.ndarray]]:
    """Makes the examples of one pass over documents.
    `window`: the documents to process, and other documents for random next sentences.
    `settings`: the settings of the generator; the lengths, the objective and the masking are used.
    Yields for each batch of rows, a dict of columns, [R, length] each, as `features_of(settings)` describes them."""
    if settings.objective == "lm":
        if settings.join_documents:
            window, documents = join_documents(window, documents, special_tokens.sep_id), range(1)
        rows = cut_blocks(window, documents, settings.max_seq_length)
    else:
        sample = sample_pairs if settings.objective == "mlm_nsp" else sample_segments
        rows = sample(window, documents, settings.max_seq_length, settings.short_seq_prob, rng)
    for start in range(0, len(rows.start_a), _ROWS_PER_STEP):
        part = PairRows(*(column[start : start + _ROWS_PER_STEP] for column in dataclasses.astuple(rows)))
        columns, lengths, is_text = fill_rows(window.tokens, part, settings.max_seq_length, special_tokens)
        if settings.masks:
            masked = masking.mask(columns["input_ids"], lengths, is_text, special_tokens.rule, rng)
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
    tokens: np.ndarray, rows: PairRows, max_seq_length: int, special_tokens: SpecialTokens
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Builds rows [CLS] A [SEP] B [SEP], or [CLS] A [SEP] if B has length 0, padded with zeros.
    `tokens`: int [T], the token ids that the rows' ranges index.
    `rows`: R segments or pairs of segments.
    `max_seq_length`: row length S.
    Returns:
    `columns`: dict of `input_ids`, int32 [R, S], and of `input_mask` and `segment_ids`, uint8 [R, S].
    `lengths`: int32 [R], the row lengths.
    `is_text`: bool [R, S], True on the tokens of A and B."""
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
    input_ids[is_sep] = special_tokens.sep_id
    input_ids[:, 0] = special_tokens.cls_id
    input_ids *= in_row
    is_text = in_row & ~is_sep
    is_text[:, 0] = False
    columns = {"input_ids": input_ids, "input_mask": in_row.view(np.uint8), "segment_ids": in_b.view(np.uint8)}
    return columns, lengths[:, 0], is_text


def _counts_of(columns: dict[str, np.ndarray]) -> UnitCounts:
    lengths, lengths_b = columns["input_mask"].sum(1, np.int64), columns["segment_ids"].sum(1, np.int64)
    is_random = columns["next_sentence_labels"][:, 0] > 0 if "next_sentence_labels" in columns else 0 * lengths > 0
    # [CLS] and [SEP] surround segment A, and another [SEP] follows segment B.
    own = lengths - lengths_b - 2 + np.where(is_random, 0, np.maximum(lengths_b - 1, 0))
    return UnitCounts(
        examples=len(lengths),
        pieces=int(lengths.sum()),
        predictions=int(columns["masked_lm_weights"].sum()) if "masked_lm_weights" in columns else 0,
        random_next=int(is_random.sum()),
        text=int(own.sum()),
    )
