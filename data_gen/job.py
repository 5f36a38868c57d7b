"""The identity of a generator run: its settings, vocabulary and corpus."""

from collections.abc import Sequence

from bert_tf.jobs import job
from data_gen.settings import GeneratorSettings

# Increment this number whenever the same settings produce different records.
_RECIPE = 2
_IMMATERIAL = {"input_file", "output_file", "vocab_file", "num_workers", "runner", "spark_master", "verify"}


class Job(job.Job):
    """A set of shards to generate.

    Args:
      settings: the resolved settings.
      outputs: paths of the shards.
      vocab_sha256: SHA-256 of the vocabulary's tokens.
      corpus: see `bert_tf.jobs.content.corpus_entries`.
    """

    def __init__(self, settings: GeneratorSettings, outputs: Sequence[str], vocab_sha256: str, corpus: list[dict]):
        kind = job.Kind(
            program="the generator",
            recipe=_RECIPE,
            immaterial=frozenset(_IMMATERIAL),
            folders=("tokens", "units", "shards"),
            facts={"vocab_sha256": "the vocabulary has changed"},
        )
        super().__init__(kind, settings, outputs, corpus, {"vocab_sha256": vocab_sha256})
