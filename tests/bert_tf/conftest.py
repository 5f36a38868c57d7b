"""Shared data of tests of whole runs."""

import pytest

from tests.bert_tf.pretraining_runs import write_records
from tests.small_configs import small_config


@pytest.fixture(scope="session")
def runs(tmp_path_factory, corpus_file, vocab_file):
    """A folder with records of 32 and 48 tokens per row, `config.json`, and `dropout.json` with dropout."""
    folder = tmp_path_factory.mktemp("runs")
    for length in (32, 48):
        write_records(folder / f"{length}.tfrecord", corpus_file, vocab_file, max_seq_length=length, dupe_factor=2)
    for name, rate in (("config", 0.0), ("dropout", 0.1)):
        config = small_config(dropout=rate, max_position_embeddings=64)
        (folder / f"{name}.json").write_text(config.to_json_string())
    return folder
