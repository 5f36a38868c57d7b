"""Two commands in one folder: first rows of 128 tokens, then 512 (paper: A.2); here 32 and 48."""

import json
import shutil

import pytest

from bert_tf.pretraining.engine import run_pretraining
from bert_tf.runs import checkpoint_folder
from bert_tf.settings import PretrainingSettings
from tests.bert_tf import pretraining_runs


def settings(runs, output_dir, *more: str) -> PretrainingSettings:
    four_steps = ("--do_train", "--num_train_steps=4", "--save_checkpoints_steps=2")
    return pretraining_runs.settings(f"{runs}/config.json", f"{runs}/32.tfrecord", output_dir, *four_steps, *more)


def lines(folder, split: str) -> list[dict]:
    entries = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [entry for entry in entries if entry["split"] == split]


def lengths(folder) -> list[tuple[int, int]]:
    """Returns the length of rows and the first step of each phase that a folder has begun."""
    begun = json.loads((folder / "run.json").read_text())["phases"]
    return [(phase["data"]["max_seq_length"], phase["first_step"]) for phase in begun]


EVERY_STEP = "--iterations_per_loop=1"
EVALUATED = (EVERY_STEP, "--do_eval", "--max_eval_steps=2")
END = "--num_schedule_steps=6"
# peak 1e-3, two steps of warm-up, linear decay from step 0 to step 6
RATES = {0: 0.0, 1: 5e-4, **{step: 1e-3 * (1 - step / 6) for step in range(2, 6)}}


def second(runs) -> tuple[str, ...]:
    """Returns the flags of a phase of two steps on longer rows."""
    return f"--input_file={runs}/48.tfrecord", "--max_seq_length=48", "--num_train_steps=6"


def rates(folder) -> dict[int, float]:
    """Returns the learning rate of each step, counted from 0."""
    return {entry["step"] - 1: entry["learning_rate"] for entry in lines(folder, "train")}


@pytest.fixture(scope="module")
def both(runs, tmp_path_factory):
    """Folder of a run of both phases, and the results of the second."""
    out = tmp_path_factory.mktemp("both") / "out"
    run_pretraining(settings(runs, out, END, *EVALUATED))
    return out, run_pretraining(settings(runs, out, *second(runs), *EVALUATED))


@pytest.mark.slow
def test_a_second_command_continues_on_longer_rows(both, caplog):
    out, results = both
    assert checkpoint_folder.newest_intact(str(out)).step == 6 and lengths(out) == [(32, 0), (48, 4)]
    evaluated = lines(out, "eval_on_training_data")
    # each phase evaluates on its own rows at its start and at its end
    assert [entry["step"] for entry in evaluated] == [0, 2, 4, 4, 6]
    assert evaluated[2]["loss"] != evaluated[3]["loss"]
    assert results["loss"] == evaluated[-1]["loss"]
    assert rates(out) == pytest.approx(RATES, rel=1e-5)
    begun = json.loads((out / "run.json").read_text())["phases"]
    assert [phase["settings"]["num_schedule_steps"] for phase in begun] == [6, 6]


@pytest.mark.slow
def test_the_second_command_resumes(runs, both, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(both[0], out)
    for path in (*out.glob("ckpt-6*"), out / "checkpoint"):  # killed before they were written
        path.unlink()
    entries = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(line for line in entries if json.loads(line)["step"] < 6))
    run_pretraining(settings(runs, out, *second(runs), *EVALUATED))
    assert checkpoint_folder.newest_intact(str(out)).step == 6 and lengths(out) == [(32, 0), (48, 4)]
    assert rates(out) == pytest.approx(RATES, rel=1e-5)
    before = (out / "metrics.jsonl").read_text()
    run_pretraining(settings(runs, out, *second(runs), EVERY_STEP))
    assert (out / "metrics.jsonl").read_text() == before, "a finished run trains no further"
