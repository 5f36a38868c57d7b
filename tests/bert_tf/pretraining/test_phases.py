"""Two commands in one folder: first rows of 128 tokens, then 512 (paper: A.2); here 32 and 48."""

import json
import shutil

import pytest

from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.pretraining.engine import run_pretraining
from bert_tf.runs import checkpoint_folder
from bert_tf.settings import PretrainingSettings


def settings(runs, output_dir, *more: str) -> PretrainingSettings:
    return parse(
        PretrainingSettings,
        [
            f"--bert_config_file={runs}/config.json", f"--input_file={runs}/32.tfrecord", f"--output_dir={output_dir}",
            "--max_seq_length=32", "--max_predictions_per_seq=5", "--do_train", "--train_batch_size=8",
            "--num_train_steps=4", "--num_warmup_steps=2", "--learning_rate=1e-3", "--save_checkpoints_steps=2", *more,
        ],
    )  # fmt: skip


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
    assert checkpoint_folder.find(str(out)).step == 6 and lengths(out) == [(32, 0), (48, 4)]
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
    assert checkpoint_folder.find(str(out)).step == 6 and lengths(out) == [(32, 0), (48, 4)]
    assert rates(out) == pytest.approx(RATES, rel=1e-5)
    before = (out / "metrics.jsonl").read_text()
    run_pretraining(settings(runs, out, *second(runs), EVERY_STEP))
    assert (out / "metrics.jsonl").read_text() == before, "a finished run trains no further"


def test_a_schedule_that_is_too_short_is_refused(runs, tmp_path):
    refused = {
        "--num_schedule_steps=3": "--num_schedule_steps=3: .* ends at --num_train_steps=4",
        "--num_warmup_steps=7": "--num_warmup_steps=7: .* ends earlier, at step 4 .*give, .*--num_warmup_steps=0",
    }
    for flag, message in refused.items():
        with pytest.raises(InputError, match=message):
            run_pretraining(settings(runs, tmp_path / "out", flag))
    settings(runs, tmp_path / "out", END, "--num_warmup_steps=6")  # longer than the first phase alone
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_command_that_fits_neither_phase_is_refused(runs, both, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(both[0], out)
    with pytest.raises(InputError, match="holds a run with other data .*max_seq_length was 48, is 32"):
        run_pretraining(settings(runs, out, END))
    with pytest.raises(InputError, match="learning_rate was 0.001, is 1.0"):
        run_pretraining(settings(runs, out, *second(runs), "--num_train_steps=8", "--learning_rate=1"))
