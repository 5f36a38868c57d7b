"""Shared parts of the generator's tests: a run in this process, and records as lists."""

import dataclasses
import pathlib

import pytest
import tensorflow as tf

from bert_tf.jobs.run_local import LocalRunner
from data_gen import generator as generator_module
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings

LENGTHS = {"max_seq_length": 32, "max_predictions_per_seq": 5, "dupe_factor": 2}


@dataclasses.dataclass(frozen=True)
class Generator:
    """Runs the generator in a folder."""

    folder: pathlib.Path
    vocab_file: str
    corpus_file: str

    def settings(self, output="out", **changes) -> GeneratorSettings:
        """Returns settings with short rows; outputs are names in the folder."""
        output = ",".join(str(self.folder / name) for name in output.split(","))
        given = {"input_file": self.corpus_file, "vocab_file": self.vocab_file, "output_file": output, **LENGTHS}
        return GeneratorSettings(**{**given, **{name: _plain(value) for name, value in changes.items()}})

    def run(self, output="out", *, runner=None, **changes):
        """Returns the shards of a run, which by default is in this process."""
        return create_pretraining_data(self.settings(output, **changes), runner or LocalRunner(1))

    def files(self) -> dict[str, bytes]:
        """Returns the name and bytes of every file in the folder and its subfolders."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()
        }


def _plain(value):
    return str(value) if isinstance(value, pathlib.Path) else value


@pytest.fixture
def generator(tmp_path, vocab_file, corpus_file) -> Generator:
    """The generator with its own folder."""
    folder = tmp_path / "set"
    folder.mkdir()
    return Generator(folder, vocab_file, corpus_file)


@pytest.fixture
def cut_text(monkeypatch):
    """A function that sets the approximate bytes per block, so that a small corpus has many blocks."""
    plan = generator_module.plan_sources

    def cut(size):
        monkeypatch.setattr(generator_module, "plan_sources", lambda path, form: plan(path, form, size))
        monkeypatch.setattr(generator_module, "group_sources", lambda sources: [(source,) for source in sources])

    return cut


@pytest.fixture(scope="session")
def read_rows():
    """A function that reads TFRecord files with TensorFlow and protobuf; each record is a dict of lists."""

    def read(*paths, gzip=False):
        rows = []
        records = tf.data.TFRecordDataset([str(path) for path in paths], compression_type="GZIP" if gzip else "")
        for record in records.as_numpy_iterator():
            found = tf.train.Example.FromString(record).features.feature
            rows.append(
                {k: list(v.float_list.value if "weights" in k else v.int64_list.value) for k, v in found.items()}
            )
        return rows

    return read


@pytest.fixture(scope="session")
def unmask():
    """A function that returns a row's ids before masking, without padding."""

    def before_masking(row):
        ids = row["input_ids"][: sum(row["input_mask"])]
        columns = (row.get(f"masked_lm_{name}", []) for name in ("positions", "ids", "weights"))
        for position, label, weight in zip(*columns, strict=True):
            if weight:
                ids[position] = label
        return ids

    return before_masking
