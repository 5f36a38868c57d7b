"""The blocks of docs/library.md, in their order and to the letter, as one program."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.pretraining.objective import BertPretrainer

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs/library.md"
# Added to the page's program.
CHECKS = """
import numpy as np

assert set(answers) <= {"good", "bad"} and model.labels == ("bad", "good")
serve = tf.saved_model.load("served/reviews/1").signatures["serving_default"]
np.testing.assert_allclose(serve(text_a=tf.constant(["a good day"]))["probabilities"], probabilities, atol=1e-5)
np.testing.assert_allclose(again(rows(["a good day"])), own_model(rows(["a good day"])), atol=1e-6)
assert vectors.shape == (len(where), 2, 16) and similarity.shape == (2, 1) and where[-2][3] == len("of texts")
assert keras.mixed_precision.global_policy().name == "float32"
"""


@pytest.mark.slow
def test_the_pages_program_runs(vocab_file, tmp_path):
    (tmp_path / "pretrained").mkdir()
    config = BertConfig(300, 16, 1, 2, 32, max_position_embeddings=32, initializer_range=0.1)
    (tmp_path / "pretrained/bert_config.json").write_text(config.to_json_string())
    (tmp_path / "pretrained/vocab.txt").write_text(pathlib.Path(vocab_file).read_text())
    tf.train.Checkpoint(model=BertPretrainer(config)).write(f"{tmp_path}/pretrained/ckpt")
    blocks = re.findall(r"^```python\n([\s\S]*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(blocks) == 4
    program = "\n".join([*blocks, CHECKS])
    environment = os.environ | {"TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(PAGE.parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
