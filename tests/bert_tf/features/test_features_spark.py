"""Extraction on Spark compared with extraction on this machine."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.bert_tf.pretrained_folder import write_pretrained
from tests.conftest import WORDS

pytestmark = pytest.mark.spark

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run(folder, output, **flags):
    given = {"init_checkpoint": "model", "input_file": "input.txt", "max_seq_length": 24, "output_file": output} | flags
    words = [sys.executable, "-m", "bert_tf.extract_features", *(f"--{name}={each}" for name, each in given.items())]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=4000, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in (folder / output).parent.glob("out-*")}


def test_spark_writes_the_bytes_of_this_machine(tmp_path, vocab_file):
    write_pretrained(tmp_path / "model", vocab_file)
    lines = [" ".join(WORDS[start % 60 : start % 60 + start % 19]) for start in range(200)]
    (tmp_path / "input.txt").write_text("".join(f"{line}\n" for line in lines))
    flags = {"output_format": "parquet", "layers": "-1,0"}
    local = run(tmp_path, "local/out@3", num_workers=2, **flags)
    spark = run(tmp_path, "spark/out@3", runner="spark", spark_master="local[2]", **flags)
    assert len(local) == 3 and spark == local
