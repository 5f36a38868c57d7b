"""Shared data of training tests."""

import pytest

from bert_tf.jobs.run_local import LocalRunner
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings
from tests.small_configs import small_config


@pytest.fixture(scope="session")
def data(tmp_path_factory, corpus_file, vocab_file):
    """A folder with `data.tfrecord` (rows of 32 tokens), `longer.tfrecord` (48), and a configuration."""
    folder = tmp_path_factory.mktemp("data")
    for name, length in (("data", 32), ("longer", 48)):
        generator = GeneratorSettings(
            input_file=corpus_file, output_file=str(folder / f"{name}.tfrecord"), vocab_file=vocab_file,
            max_seq_length=length, max_predictions_per_seq=5, dupe_factor=2,
        )  # fmt: skip
        with LocalRunner(1) as runner:
            create_pretraining_data(generator, runner)
    config = small_config(max_position_embeddings=64)
    (folder / "config.json").write_text(config.to_json_string())
    return folder
