"""Shared data of tests of whole runs."""

import pytest

from bert_tf.jobs.run_local import LocalRunner
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings
from tests.small_configs import small_config


@pytest.fixture(scope="session")
def runs(tmp_path_factory, corpus_file, vocab_file):
    """A folder with records of 32 and 48 tokens per row, `config.json`, and `dropout.json` with dropout."""
    folder = tmp_path_factory.mktemp("runs")
    for length in (32, 48):
        generator = GeneratorSettings(
            input_file=corpus_file, output_file=str(folder / f"{length}.tfrecord"), vocab_file=vocab_file,
            max_seq_length=length, max_predictions_per_seq=5, dupe_factor=2,
        )  # fmt: skip
        with LocalRunner(1) as runner:
            create_pretraining_data(generator, runner)
    for name, rate in (("config", 0.0), ("dropout", 0.1)):
        config = small_config(dropout=rate, max_position_embeddings=64)
        (folder / f"{name}.json").write_text(config.to_json_string())
    return folder
