"""Writes the vectors of all texts in the input files, as a job of one task per shard.

Paper: section 5.3.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from absl import logging

from bert_tf import checkpoint_tokenizer
from bert_tf.features import formats, model
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.features.formats import Chunk
from bert_tf.features.rows import TokenRows
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


@dataclasses.dataclass(frozen=True)
class FeatureCounts(text_job.TextCounts):
    """Counts of a shard."""

    unknown: int = 0  # number of tokens that are [UNK]
    truncated: int = 0  # number of texts that were truncated
    damaged: int = 0  # number of lines with bytes that are not UTF-8


def extract_features(settings: FeaturesSettings, runner: Runner) -> list[manifest.Shard]:
    """Writes the shards that `settings` describes, then their manifest; see `bert_tf.jobs.text_job.run`."""
    settings = model.resolve(settings)
    formats.check_library(settings)
    identity = {
        **checkpoint_tokenizer.rules_of(settings).facts,
        "weights_sha256": model.encoder_sha256(settings),
    }
    return text_job.run(_PROGRAM, settings, identity, runner)


@functools.lru_cache(maxsize=1)
def _extractor(settings: VectorSettings, weights_sha256: str) -> FeatureExtractor:
    """Returns the extractor of this process; the weights are loaded only once."""
    return FeatureExtractor.of_settings(settings)


def _write(task: TextTask, told: Callable[[int], None]) -> FeatureCounts:
    extractor, settings = _extractor(task.settings, task.weights_sha256), task.settings
    facts = FeatureCounts(lines=task.source.lines)

    def chunks() -> Iterator[Chunk]:
        nonlocal facts
        for texts, rows, values in extractor.vectors(read_texts(task.source, settings)):
            facts += _count(texts, rows, extractor.tokenizer.unk_id)
            lines = np.array([text.line for text in texts], np.int64)
            ids = [text.id for text in texts] if settings.id_field else None
            yield Chunk(lines, ids, rows, extractor.pooled(values, rows).astype(settings.dtype))
            told(texts[-1].line + 1)
        if not facts.texts:  # a file without rows has the same columns
            size = (0, len(extractor.layers), extractor.vector_size)
            ids = [] if settings.id_field else None
            yield Chunk(np.zeros(0, np.int64), ids, TokenRows.empty(), np.zeros(size, settings.dtype))

    formats.write(task.path, chunks(), settings, extractor.tokenizer.vocabulary)
    return facts


def _count(texts: Sequence[Text], rows: TokenRows, unk_id: int) -> FeatureCounts:
    return FeatureCounts(
        texts=len(texts),
        tokens=len(rows.input_ids),
        unknown=int(np.sum(rows.input_ids == unk_id)),
        truncated=int(rows.is_truncated.sum()),
        damaged=sum(text.is_damaged for text in texts),
    )


def _finish(this: Job, shards: Sequence[manifest.Shard], facts: FeatureCounts) -> dict[str, int]:
    """Logs the results and the shares of truncated and unknown text; returns the counts for the manifest."""
    settings, unknown = this.settings, facts.unknown / max(1, facts.tokens)
    if unknown > MOST_UNKNOWN:
        logging.warning("%s", of_unknown(unknown, settings.vocab_file, settings.do_lower_case))
    if facts.truncated:
        logging.warning(
            "%s of %s texts are longer than --max_seq_length=%d and were truncated",
            f"{facts.truncated:,}", f"{facts.texts:,}", settings.max_seq_length,
        )  # fmt: skip
    if facts.damaged:
        logging.warning(
            "bytes that are not UTF-8 were dropped in %s of %s lines", f"{facts.damaged:,}", f"{facts.lines:,}"
        )
    what = f"vectors of {facts.texts:,} texts"
    if not settings.is_pooled:
        what = f"vectors of {facts.tokens:,} tokens in {facts.texts:,} texts"
    size = sum(shard.bytes for shard in shards)
    plural = "s" * (len(shards) > 1)
    logging.info(
        "%s: wrote %s (%.1f%% [UNK]), %.1f MB in %d shard%s",
        this.manifest_path, what, 100 * unknown, size / 1e6, len(shards), plural,
    )  # fmt: skip
    return {name: getattr(facts, name) for name in ("lines", "texts", "tokens", "unknown", "truncated", "damaged")}


_PROGRAM = text_job.Program("extracting", _RECIPE, FeatureCounts, _write, _finish)
