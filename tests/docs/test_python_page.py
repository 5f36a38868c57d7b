"""The blocks of docs/how_to/python.md, in order and unchanged, as one program."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.bert_tf.pretrained_folder import write_pretrained

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/how_to/python.md"
# Added to the page's program.
CHECKS = """
import numpy as np

assert model.labels == ("bad", "good") and embedder.encode(["a lovely song"]).shape[0] == 1
serve = tf.saved_model.load("served/reviews/1").signatures["serving_default"]
np.testing.assert_allclose(serve(text_a=tf.constant(["a great day"]))["probabilities"], probabilities, atol=1e-5)
np.testing.assert_allclose(again(rows(["a good day"])), own_model(rows(["a good day"])), atol=1e-6)
assert vectors.shape[:2] == (len(where), 2) and similarity.shape == (2, 1) and where[-2][3] == len("of texts")
assert keras.mixed_precision.global_policy().name == "float32"
"""


@pytest.mark.slow
def test_the_pages_program_runs(vocab_file, tmp_path):
    write_pretrained(tmp_path / "pretrained", vocab_file)
    programs = re.findall(r"^```python\n([\s\S]*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(programs) == 7
    environment = os.environ | {"TF_USE_LEGACY_KERAS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(PAGE.parents[2]), environment.get("PYTHONPATH", "")])
    program = "\n".join([*programs, CHECKS])
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
