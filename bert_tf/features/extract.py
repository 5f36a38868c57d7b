"""Writes the vectors of all texts in the input files, as a job of one task per shard. The formats are JSON Lines, as in
google-research/bert, and Parquet.

Paper: section 5.3.

Letters: T tokens.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from absl import logging

from bert_tf import checkpoint_tokenizer
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.features import model
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.features.rows import NOWHERE, TOKEN_COLUMNS, TokenRows
from bert_tf.features.texts import Text, read_texts
from bert_tf.jobs import text_job
from bert_tf.jobs.job import Job
from bert_tf.jobs.runner import Runner
from bert_tf.jobs.text_job import TextTask
from bert_tf.settings.features import FeaturesSettings, VectorSettings
from bert_tf.text.tokenizer_rules import MOST_UNKNOWN, of_unknown
from tfrecords import manifest

# Increment this number whenever a change makes the same settings produce different bytes.
_RECIPE = 2
# The original rounds to this number of decimals.
_DIGITS = 6


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """Some texts and their vectors, in the order of the input."""

    lines: np.ndarray  # int64 [N], the index of each text's line among the lines of all input files
    ids: Sequence[str | int] | None  # the texts' ids in the input; None if the input has no ids
    rows: TokenRows  # the tokens of the texts
    values: np.ndarray  # the vectors, float32 or float16 [T, L, H]; [N, L, H] if pooled


@dataclasses.dataclass(frozen=True)
class FeatureCounts(text_job.TextCounts):
    """Counts of a shard."""

    unknown: int = 0  # number of tokens that are [UNK]
    truncated: int = 0  # number of texts that were truncated
    damaged: int = 0  # number of lines with bytes that are not UTF-8


def extract_features(settings: FeaturesSettings, runner: Runner) -> list[manifest.Shard]:
    """Writes the shards that `settings` describes, then their manifest; see `bert_tf.jobs.text_job.run`."""
    settings = model.resolve(settings)
    _check_library(settings)
    identity = {
        **checkpoint_tokenizer.rules_of(settings).facts,
        "weights_sha256": model.encoder_sha256(settings),
    }
    return text_job.run(_PROGRAM, settings, identity, runner)


def _check_library(settings: FeaturesSettings) -> None:
    """Refuses a format whose library is missing."""
    if settings.output_format == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise InputError("--output_format=parquet needs PyArrow: pip install pyarrow, or choose jsonl") from error


def _write_chunks(path: str, chunks: Iterable[_Chunk], settings: FeaturesSettings, vocabulary: Sequence[str]) -> None:
    """Writes a shard atomically."""
    with storage.local_path_of(path) as temporary:
        if settings.output_format == "parquet":
            _write_parquet(temporary, chunks, settings)
            return
        with open(temporary, "w", encoding="utf-8") as file:
            for chunk in chunks:
                file.writelines(json.dumps(entry) + "\n" for entry in _objects(chunk, settings, vocabulary))


def _objects(chunk: _Chunk, settings: FeaturesSettings, vocabulary: Sequence[str]) -> Iterator[dict]:
    rows = chunk.rows
    splits = np.arange(len(chunk.lines) + 1) if settings.is_pooled else rows.splits
    for number, line in enumerate(chunk.lines.tolist()):
        entry = {"linex_index": line}
        if chunk.ids is not None:
            entry["id"] = chunk.ids[number]
        taken = slice(splits[number], splits[number + 1])
        # The product with 10^6 is exact in float64, so the result equals Python's round().
        rounded = np.round(chunk.values[taken].astype(np.float64), _DIGITS).tolist()
        vectors = [
            [{"index": layer, "values": each} for layer, each in zip(settings.layer_numbers, values, strict=True)]
            for values in rounded
        ]
        if settings.is_pooled:
            entry["layers"] = vectors[0]
        else:
            tokens = [{"token": vocabulary[id_]} for id_ in rows.input_ids[taken].tolist()]
            if settings.alignment:
                for token, where in zip(tokens, _alignments(rows, taken), strict=True):
                    token.update(where)
            entry["features"] = [token | {"layers": each} for token, each in zip(tokens, vectors, strict=True)]
        yield entry


def _alignments(rows: TokenRows, taken: slice) -> Iterator[dict]:
    names = {"segment": rows.segment_ids, "word": rows.words, "start": rows.starts, "end": rows.ends}
    for values in zip(*(column[taken].tolist() for column in names.values()), strict=True):
        yield {name: None if value == NOWHERE else value for name, value in zip(names, values, strict=True)}


def _write_parquet(path: str, chunks: Iterable[_Chunk], settings: FeaturesSettings) -> None:
    """Writes one row per text: `linex_index`, `id`, and a column of vectors for each layer, such as `layer_-1`. If the
    vectors are not pooled, each column of vectors contains lists with one vector per token, and there are also the
    columns `input_ids`, `segment_ids`, `words`, `starts` and `ends`."""
    import pyarrow
    from pyarrow import parquet

    def columns_of(chunk: _Chunk) -> dict[str, pyarrow.Array]:
        columns = {"linex_index": pyarrow.array(chunk.lines)}
        if chunk.ids is not None:
            columns["id"] = pyarrow.array([str(each) for each in chunk.ids], pyarrow.string())
        splits = pyarrow.array(chunk.rows.splits.astype(np.int32))
        if not settings.is_pooled:
            tokens = {name: pyarrow.array(getattr(chunk.rows, name)) for name in TOKEN_COLUMNS}
            columns |= {name: pyarrow.ListArray.from_arrays(splits, each) for name, each in tokens.items()}
        for index, layer in enumerate(settings.layer_numbers):
            flat = pyarrow.array(np.ascontiguousarray(chunk.values[:, index]).reshape(-1))
            vectors = pyarrow.FixedSizeListArray.from_arrays(flat, chunk.values.shape[-1])
            is_list = not settings.is_pooled
            columns[f"layer_{layer}"] = pyarrow.ListArray.from_arrays(splits, vectors) if is_list else vectors
        return columns

    file = None
    try:
        for chunk in chunks:
            table = pyarrow.table(columns_of(chunk))
            # Floats rarely repeat, so a dictionary would only take time.
            file = file or parquet.ParquetWriter(path, table.schema, use_dictionary=False)
            file.write_table(table)
    finally:
        if file:
            file.close()


@functools.lru_cache(maxsize=1)
def _extractor(settings: VectorSettings, weights_sha256: str) -> FeatureExtractor:
    """Returns the extractor of this process; the weights are loaded only once."""
    return FeatureExtractor.of_settings(settings)


def _write(task: TextTask, told: Callable[[int], None]) -> FeatureCounts:
    extractor, settings = _extractor(task.settings, task.weights_sha256), task.settings
    counts = FeatureCounts(lines=task.source.lines)

    def chunks() -> Iterator[_Chunk]:
        nonlocal counts
        for texts, rows, values in extractor.vectors(read_texts(task.source, settings)):
            counts += _count(texts, rows, extractor.tokenizer.unk_id)
            lines = np.array([text.line for text in texts], np.int64)
            ids = [text.id for text in texts] if settings.id_field else None
            yield _Chunk(lines, ids, rows, extractor.pooled(values, rows).astype(settings.dtype))
            told(texts[-1].line + 1)
        if not counts.texts:  # a file without rows has the same columns
            size = (0, len(extractor.layers), extractor.vector_size)
            ids = [] if settings.id_field else None
            yield _Chunk(np.zeros(0, np.int64), ids, TokenRows.empty(), np.zeros(size, settings.dtype))

    _write_chunks(task.path, chunks(), settings, extractor.tokenizer.vocabulary)
    return counts


def _count(texts: Sequence[Text], rows: TokenRows, unk_id: int) -> FeatureCounts:
    return FeatureCounts(
        texts=len(texts),
        tokens=len(rows.input_ids),
        unknown=int(np.sum(rows.input_ids == unk_id)),
        truncated=int(rows.is_truncated.sum()),
        damaged=sum(text.is_damaged for text in texts),
    )


def _finish(this: Job, shards: Sequence[manifest.Shard], counts: FeatureCounts) -> dict[str, int]:
    """Logs the results and the shares of truncated and unknown text; returns the counts for the manifest."""
    settings, unknown = this.settings, counts.unknown / max(1, counts.tokens)
    if unknown > MOST_UNKNOWN:
        logging.warning("%s", of_unknown(unknown, settings.vocab_file, settings.do_lower_case))
    if counts.truncated:
        logging.warning(
            "%s of %s texts are longer than --max_seq_length=%d and were truncated",
            f"{counts.truncated:,}", f"{counts.texts:,}", settings.max_seq_length,
        )  # fmt: skip
    if counts.damaged:
        logging.warning(
            "bytes that are not UTF-8 were dropped in %s of %s lines", f"{counts.damaged:,}", f"{counts.lines:,}"
        )
    what = f"vectors of {counts.texts:,} texts"
    if not settings.is_pooled:
        what = f"vectors of {counts.tokens:,} tokens in {counts.texts:,} texts"
    size = sum(shard.bytes for shard in shards)
    plural = "s" * (len(shards) > 1)
    logging.info(
        "%s: wrote %s (%.1f%% [UNK]), %.1f MB in %d shard%s",
        this.manifest_path, what, 100 * unknown, size / 1e6, len(shards), plural,
    )  # fmt: skip
    return {name: getattr(counts, name) for name in ("lines", "texts", "tokens", "unknown", "truncated", "damaged")}


_PROGRAM = text_job.Program("extracting", _RECIPE, FeatureCounts, _write, _finish)
