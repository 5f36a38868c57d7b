"""What holds for every kind of task: later commands use what the run's folder has, and XLA compiles the whole step."""

import pytest

from tests.bert_tf.tasks import small_runs


@pytest.mark.quick_cases("classification")
@pytest.mark.parametrize("kind", small_runs.KINDS)
def test_a_later_evaluation_has_the_same_scores(project, kind):
    """With other batches and without packed rows."""
    run = project.copy_of_trained(kind)
    results = dict(line.split(" = ") for line in (run / "eval_results.txt").read_text().splitlines())
    files = {path.name for path in run.iterdir()}
    for flags in (("--eval_batch_size=5",), ("--nopack_sequences", "--predict_batch_size=3")):
        scores = project.run_kind(kind, run, "--do_eval", "--do_predict", *flags)
        assert scores == pytest.approx({name: float(results[f"eval_{name}"]) for name in scores}, rel=1e-4)
    assert {path.name for path in run.iterdir()} == files


@pytest.mark.slow
@pytest.mark.parametrize("kind", small_runs.KINDS)
def test_a_compiled_step_is_the_step(kind, vocab_file, tmp_path):
    """On a GPU, compilation is the default."""
    plain, compiled = (
        small_runs.trained(kind, vocab_file, tmp_path / flag, f"--{flag}") for flag in ("noenable_xla", "enable_xla")
    )
    assert len(plain) == 4
    for step, (got, expected) in enumerate(zip(compiled, plain, strict=True)):
        assert got == pytest.approx(expected, rel=1e-4), f"step {step}"
