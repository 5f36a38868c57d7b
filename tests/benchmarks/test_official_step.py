"""The peer of the compiled step trains the same weights."""

import pytest

from benchmarks.compile_check import programs, steps
from benchmarks.official_step import official_step
from bert_tf.settings import DeviceSettings
from tests.small_configs import small_config

CONFIG = small_config(50, max_position_embeddings=24)
SHAPE = steps.Shape(batch_size=3, length=12, predictions=2)


@pytest.mark.slow
def test_the_official_step_trains_the_same_weights():
    ours = steps.our_step(CONFIG, SHAPE, DeviceSettings(dtype="bfloat16"))
    official = official_step(CONFIG, SHAPE, "bfloat16")
    programs.check(official)
    signatures = [text[text.index("func.func @main(") :].split(") -> ")[0] for text in (ours, official)]
    for shape in ("50x16", "24x16", "16x32", "32x16"):  # words, positions, feed-forward; each with both moments
        assert [signature.count(f": tensor<{shape}xf32>") for signature in signatures] == [3, 3]
