"""The phases of one command: first rows of 128 tokens, then 512 (paper: A.2); here 32 and 48."""

import json
import shutil

import pytest
from tensorflow.python.framework import ops

from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.pretraining import phases
from bert_tf.pretraining.engine import run_pretraining
from bert_tf.runs import latest
from bert_tf.settings import PretrainingSettings
from bert_tf.training import loop


def settings(runs, output_dir, *more: str) -> PretrainingSettings:
    return parse(
        PretrainingSettings,
        [
            f"--bert_config_file={runs}/config.json", f"--input_file={runs}/32.tfrecord", f"--output_dir={output_dir}",
            "--max_seq_length=32", "--max_predictions_per_seq=5", "--do_train", "--train_batch_size=8",
            "--num_train_steps=4", "--num_warmup_steps=2", "--learning_rate=1e-3", "--save_checkpoints_steps=2", *more,
        ],
    )  # fmt: skip


@pytest.fixture
def second(runs, tmp_path):
    return second_phase(runs, tmp_path)


def second_phase(runs, folder) -> str:
    """Returns the flag for a phase of two steps on longer rows."""
    path = folder / "second.flags"
    path.write_text(f"# then\n--input_file={runs}/48.tfrecord\n--max_seq_length=48\n--num_train_steps=6\n")
    return f"--next_phase={path}"


def lines(folder, split: str) -> list[dict]:
    entries = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [entry for entry in entries if entry["split"] == split]


def lengths(folder) -> list[tuple[int, int]]:
    """Returns the length of rows and the first step of each phase that a folder has begun."""
    begun = json.loads((folder / "run.json").read_text())["phases"]
    return [(phase["data"]["max_seq_length"], phase["first_step"]) for phase in begun]


def test_a_phase_takes_the_flags_of_the_one_before_but_for_its_own(runs, tmp_path, second):
    third = tmp_path / "third.flags"
    third.write_text("--num_train_steps=9\n--gradient_accumulation_steps=2\n")
    (tmp_path / "second.flags").write_text(f"--max_seq_length=48\n--num_train_steps=6\n--next_phase={third}\n")
    first, second, third = (phase.settings for phase in phases.of(settings(runs, tmp_path, second)))
    assert (first.max_seq_length, second.max_seq_length, third.max_seq_length) == (32, 48, 48)
    assert (first.num_train_steps, second.num_train_steps, third.num_train_steps) == (4, 6, 9)
    assert (second.gradient_accumulation_steps, third.gradient_accumulation_steps) == (1, 2)
    assert third.learning_rate == first.learning_rate and third.do_train and not third.next_phase


EVERY_STEP = "--iterations_per_loop=1"
EVALUATED = (EVERY_STEP, "--do_eval", "--max_eval_steps=2")


@pytest.fixture(scope="module")
def both(runs, tmp_path_factory):
    """Folder and results of a run of both phases, and the number of gradients that stay in TensorFlow's registry."""
    folder, before = tmp_path_factory.mktemp("both"), set(ops.gradient_registry.list())
    results = run_pretraining(settings(runs, folder / "out", second_phase(runs, folder), *EVALUATED))
    return folder / "out", results, set(ops.gradient_registry.list()) - before


@pytest.mark.slow
def test_phases_train_one_after_the_other_and_are_evaluated_each(both):
    out, results, gradients = both
    custom = [name for name in gradients if name.startswith("CustomGradient-")]
    assert not custom, "they would hold the weights and moments of both phases"
    assert latest.find(str(out)).step == 6 and lengths(out) == [(32, 0), (48, 4)]
    evaluated = lines(out, "eval_on_training_data")
    # each phase evaluates on its own rows at its start and at its end
    assert [entry["step"] for entry in evaluated] == [0, 2, 4, 4, 6]
    assert evaluated[2]["loss"] != evaluated[3]["loss"]
    assert results["loss"] == evaluated[-1]["loss"]
    # one schedule spans both
    assert rates(out) == pytest.approx(RATES, rel=1e-5)
    begun = json.loads((out / "run.json").read_text())["phases"]
    assert [phase["settings"]["num_schedule_steps"] for phase in begun] == [6, 6]


def rates(folder) -> dict[int, float]:
    """Returns the learning rate of each step, counted from 0."""
    return {entry["step"] - 1: entry["learning_rate"] for entry in lines(folder, "train")}


# peak 1e-3, two steps of warm-up, linear decay from step 0 to step 6
RATES = {0: 0.0, 1: 5e-4, **{step: 1e-3 * (1 - step / 6) for step in range(2, 6)}}


@pytest.mark.slow
def test_phases_that_are_commands_of_their_own_share_the_schedule_that_a_flag_names(runs, tmp_path, caplog):
    out, end = tmp_path / "out", "--num_schedule_steps=6"
    longer = (f"--input_file={runs}/48.tfrecord", "--max_seq_length=48", "--num_train_steps=6")
    run_pretraining(settings(runs, out, EVERY_STEP, end))
    run_pretraining(settings(runs, out, EVERY_STEP, *longer))
    assert rates(out) == pytest.approx(RATES, rel=1e-5)
    assert "the learning rate jumps" not in caplog.text


def test_a_schedule_that_is_too_short_is_refused(runs, tmp_path, second):
    refused = {
        "--num_schedule_steps=5": "second.flags: --num_schedule_steps=5: .* ends at --num_train_steps=6",
        "--num_warmup_steps=7": "--num_warmup_steps=7: .* ends earlier, at step 6 .*give, .*--num_warmup_steps=0",
    }
    for flag, message in refused.items():
        with pytest.raises(InputError, match=message):
            run_pretraining(settings(runs, tmp_path / "out", second, flag))
    phases.of(settings(runs, tmp_path / "out", second, "--num_warmup_steps=6"))  # longer than the first phase alone
    phases.of(settings(runs, tmp_path / "out", "--num_warmup_steps=7", "--nodo_train", "--do_eval"))


def check_resumed(runs, out, second, *flags):
    run_pretraining(settings(runs, out, second, *flags))
    assert latest.find(str(out)).step == 6 and lengths(out) == [(32, 0), (48, 4)]
    assert rates(out) == pytest.approx(RATES, rel=1e-5)


@pytest.mark.slow
def test_the_same_command_goes_on_with_the_second_phase_which_was_not_begun(runs, tmp_path, second, monkeypatch):
    class Killed(BaseException):
        pass

    train, out = loop.train, tmp_path / "out"

    def stop_between(trainer, *arguments, **more):
        if latest.find(str(out)).step == 4:
            raise Killed
        train(trainer, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train", stop_between)
        with pytest.raises(Killed):
            run_pretraining(settings(runs, out, second, EVERY_STEP))
    check_resumed(runs, out, second, EVERY_STEP)


@pytest.mark.slow
def test_the_same_command_goes_on_in_the_second_phase_and_finished_trains_no_further(runs, both, tmp_path, second):
    out = tmp_path / "out"
    shutil.copytree(both[0], out)
    for path in (*out.glob("ckpt-6*"), out / "checkpoint"):  # killed before they were written
        path.unlink()
    entries = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(line for line in entries if json.loads(line)["step"] < 6))
    check_resumed(runs, out, second, *EVALUATED)
    before = (out / "metrics.jsonl").read_text()
    run_pretraining(settings(runs, out, second, EVERY_STEP))
    assert (out / "metrics.jsonl").read_text() == before, "a finished run trains no further"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--num_train_steps=4\n--max_seq_length=48\n--input_file={runs}/48.tfrecord",
            "--num_train_steps=4 must be above 4, the value of the previous phase",
        ),
        ("--num_train_steps=6\n--learning_rate=1", "cannot continue .*learning_rate was 0.001, is 1.0"),
        ("--num_train_steps=6\n--input_file={runs}/48.tfrecord", "input_ids has 48 values but --max_seq_length=32"),
        ("--num_train_steps=6\n--max_seq_length=48\n--input_file=none", "second.flags: --input_file: none: no such"),
        ("--num_train_steps=6\n--max_seq_length=128", "max_seq_length=128 is beyond max_position_embeddings=64"),
        ("--num_train_steps=6\n--train_batch_size=6\n--gradient_accumulation_steps=4", "multiple of 4 .1 replicas"),
        ("--num_train_steps=6\n--output_dir=other", "--output_dir=other: must be .*, as in the previous phase"),
        ("--num_train_steps=6\n--dtype=bfloat16", "--dtype=bfloat16: must be float32"),
        ("--num_train_steps=six", "num_train_steps"),
        ("--num_train_stepz=6", "num_train_stepz"),
        ("--num_train_steps=0", "second.flags: --num_train_steps=0: must be above 0"),
        ("--next_phase={second}", "follows itself"),
    ],
)
def test_a_bad_second_phase_is_refused_before_the_first_trains(runs, tmp_path, second, flags, message):
    path = second.removeprefix("--next_phase=")
    with open(path, "w") as file:
        file.write(flags.format(runs=runs, second=path))
    with pytest.raises(InputError, match=message):
        run_pretraining(settings(runs, tmp_path / "out", second))
    assert not (tmp_path / "out").exists()


def test_a_flag_file_that_is_not_there_is_refused(runs, tmp_path):
    with pytest.raises(InputError, match=r"--next_phase=none.flags: .*none.flags"):
        phases.of(settings(runs, tmp_path, "--next_phase=none.flags"))
