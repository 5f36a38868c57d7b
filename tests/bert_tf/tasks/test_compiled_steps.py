"""XLA compiles the whole step of every kind of task; on a GPU, this is the default."""

import pytest

from tests.bert_tf.tasks import small_runs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", small_runs.KINDS)
def test_a_compiled_step_is_the_step(kind, vocab_file, tmp_path):
    plain, compiled = (
        small_runs.trained(kind, vocab_file, tmp_path / flag, f"--{flag}") for flag in ("noenable_xla", "enable_xla")
    )
    assert len(plain) == 4
    for step, (got, expected) in enumerate(zip(compiled, plain, strict=True)):
        assert got == pytest.approx(expected, rel=1e-4), f"step {step}"
