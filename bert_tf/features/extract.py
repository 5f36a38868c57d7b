"""Writes the vectors of all texts in the input files, as a job of several parts.

Paper: section 5.3.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging

from bert_tf import checkpoint_tokenizer
from bert_tf.features import model
from bert_tf.features.chunks import Chunk, Facts
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.features.formats import format_of
from bert_tf.features.rows import Rows
from bert_tf.features.texts import Text, read_texts
from bert_tf.jobs import parts
from bert_tf.jobs.job import Job
from bert_tf.jobs.parts import JoinTask, PartTask
from bert_tf.jobs.runner import Runner
from bert_tf.settings.features import FeaturesSettings, VectorSettings
from bert_tf.text.tokenizer_rules import MOST_UNKNOWN, of_unknown
from tfrecords import manifest

# Increment this number whenever a change makes the same settings produce different bytes.
_RECIPE = 1


def extract_features(settings: FeaturesSettings, runner: Runner) -> list[manifest.Shard]:
    """Writes the shards that `settings` describes, then their manifest; see `bert_tf.jobs.parts.run`."""
    settings = model.resolve(settings)
    format_of(settings)  # raises an error if the format's library is missing
    identity = {
        **checkpoint_tokenizer.rules_of(settings).facts,
        "weights_sha256": model.encoder_sha256(settings),
    }
    return parts.run(_PROGRAM, settings, identity, runner)


@functools.lru_cache(maxsize=1)
def _extractor(settings: VectorSettings, weights_sha256: str) -> FeatureExtractor:
    """Returns the extractor of this process; the weights are loaded only once."""
    return FeatureExtractor.of_settings(settings)


def _write(task: PartTask) -> Facts:
    extractor, settings = _extractor(task.settings, task.weights_sha256), task.settings
    output = format_of(settings)(settings, extractor.vector_size, extractor.tokenizer.vocabulary)
    counts = {"facts": Facts(lines=task.source.lines)}

    def chunks() -> Iterator[Chunk]:
        for texts, rows, values in extractor.vectors(read_texts(task.source, settings)):
            counts["facts"] += _count(texts, rows, extractor.tokenizer.unk_id)
            lines = np.array([text.line for text in texts], np.int64)
            ids = [text.id for text in texts] if output.has_ids else None
            yield Chunk(lines, ids, rows, extractor.pooled(values, rows).astype(settings.dtype))

    output.write(task.path, chunks())
    return counts["facts"]


def _count(texts: Sequence[Text], rows: Rows, unk_id: int) -> Facts:
    return Facts(
        texts=len(texts),
        tokens=len(rows.input_ids),
        unknown=int(np.sum(rows.input_ids == unk_id)),
        truncated=int(rows.is_truncated.sum()),
        damaged=sum(text.is_damaged for text in texts),
        longest_id=max((len(str(text.id)) for text in texts if text.id is not None), default=0),
    )


def _files(task: PartTask) -> list[str]:
    return format_of(task.settings)(task.settings, 0).files(task.path)


def _join(task: JoinTask) -> None:
    size = model.vector_size(task.settings, model.config_of(task.settings))
    format_of(task.settings)(task.settings, size).join(task.path, task.parts, task.facts)


def _finish(this: Job, shards: Sequence[manifest.Shard], facts: Facts) -> dict[str, int]:
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


_PROGRAM = parts.Program("extracting", _RECIPE, Facts, _write, _finish, _files, _join)
