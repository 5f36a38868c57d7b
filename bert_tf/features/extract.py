"""Writes the vectors of all texts of some files, as a job in parts.

Paper: section 5.3.
"""

from collections.abc import Sequence

from absl import logging

from bert_tf.features import model
from bert_tf.features.chunks import Facts
from bert_tf.features.formats import find_format
from bert_tf.features.parts import PROGRAM
from bert_tf.settings.features import FeaturesSettings
from bert_tf.settings.jobs import IMMATERIAL
from bert_tf.tokenization import load_vocabulary
from jobs import job, parts
from jobs.content import corpus_entries, hash_range, plan_hashes
from jobs.runner import Runner
from jobs.shard_names import output_paths
from jobs.sources import plan_sources
from tfrecords import manifest, reader, writer
from tfrecords.vocabulary import tokens_sha256

# Increment this number whenever the same settings produce other bytes.
_RECIPE = 1
_KIND = job.Kind(
    program="extract_features",
    recipe=_RECIPE,
    immaterial=IMMATERIAL | {"init_checkpoint", "bert_config_file", "vocab_file", "ignore_checkpoint_tokenizer"},
    folders=parts.FOLDERS,
    facts={
        "vocab_sha256": "the vocabulary has changed",
        "encoder_sha256": "the encoder has other weights or another configuration",
    },
)  # fmt: skip


def extract_features(settings: FeaturesSettings, runner: Runner) -> list[manifest.Shard]:
    """Writes the shards that `settings` describes, then their manifest.

    A finished set is left unchanged; an unfinished one is resumed.

    Returns:
      The shards.

    Raises:
      InputError: a file is missing or empty, the encoder lacks a layer, a line is not what the format says, or the
        existing set has other settings.
    """
    outputs = output_paths(settings.output_file)
    files = reader.expand_files(settings.input_file)
    settings = model.resolve(settings)
    find_format(settings.output_format)
    writer.check_outputs(outputs, read=[*files, settings.vocab_file])
    sources = plan_sources(files, len(outputs))
    facts = {
        "vocab_sha256": tokens_sha256(load_vocabulary(settings.vocab_file)),
        "encoder_sha256": model.encoder_sha256(settings),
    }
    corpus = corpus_entries(files, dict(runner.map(hash_range, plan_hashes(files))))
    this = job.Job(_KIND, settings, outputs, corpus, facts)
    return parts.run(PROGRAM, this, sources, facts["encoder_sha256"], runner, _finish)


def _finish(this: job.Job, shards: Sequence[manifest.Shard], facts: Facts) -> None:
    """Writes the manifest, and says what was written and what was cut off."""
    entries = {key: value for key, value in this.identity.items() if key not in ("settings", "outputs")}
    counts = {"lines": facts.lines, "texts": facts.texts, "tokens": facts.tokens, "truncated": facts.truncated}
    text = manifest.to_json(this.identity["settings"], list(shards), **entries, **counts, damaged=facts.damaged)
    writer.write_text(this.manifest_path, text)
    if facts.truncated:
        logging.warning(
            "%s of %s texts are longer than --max_seq_length=%d and were cut off",
            f"{facts.truncated:,}", f"{facts.texts:,}", this.settings.max_seq_length,
        )  # fmt: skip
    if facts.damaged:
        logging.warning(
            "bytes that are not UTF-8 were dropped in %s of %s lines", f"{facts.damaged:,}", f"{facts.lines:,}"
        )
    what = f"vectors of {facts.texts:,} texts"
    if not this.settings.is_pooled:
        what = f"vectors of {facts.tokens:,} tokens in {facts.texts:,} texts"
    size = sum(shard.bytes for shard in shards)
    plural = "s" * (len(shards) > 1)
    logging.info("%s: wrote %s, %.1f MB in %d shard%s", this.manifest_path, what, size / 1e6, len(shards), plural)
