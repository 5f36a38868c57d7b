"""Whole runs of a task that is not a classification: evaluation during training, the best checkpoint, and seeds."""

import dataclasses
import json
import shutil

import pytest
import tensorflow as tf

from bert_tf.core import identity
from bert_tf.core.command_line import parse
from bert_tf.distributed import strategies
from bert_tf.finetuning import description, prepared_run
from bert_tf.finetuning.engine import run_finetuning
from bert_tf.finetuning.evaluation_schedule import EvaluationSchedule, evaluation_steps
from bert_tf.runs import checkpoint_folder, chosen_checkpoint, evaluations, run_folder
from bert_tf.runs.checkpoint_folder import ResumePoint
from bert_tf.runs.chosen_checkpoint import choose
from bert_tf.runs.evaluations import Evaluations
from bert_tf.settings import FineTuningSettings
from bert_tf.training import metrics_file
from tests.bert_tf.finetuning.killed_run import Killed, assert_same_weights, weights
from tests.bert_tf.finetuning.word_task import FindTheWord, settings, train
from tests.kit import refused, write

SCORES = {2: 0.1, 4: 0.5, 7: 0.3, 9: 0.4, 12: 0.9}
EARLY = ["--do_train", "--do_eval", "--num_train_epochs=5", "--eval_strategy=epoch", "--early_stopping_patience=2"]


@pytest.fixture(scope="module")
def trained(folder, vocab_file, tmp_path_factory):
    output = tmp_path_factory.mktemp("trained")
    return output, train(folder, vocab_file, output, "--do_train", "--do_eval", "--do_predict")


def test_a_task_of_another_shape_works(folder, trained):
    output, scores = trained
    assert scores.keys() == {"exact_rows", "loss"} and scores["exact_rows"] == 1.0 and scores["loss"] < 0.1
    assert "eval_exact_rows = 1.0" in (output / "eval_results.txt").read_text()
    found = json.loads((output / "found.json").read_text())
    assert found == {line: line.split().count("the") for line in (folder / "test.txt").read_text().splitlines()}
    lines = metrics_file.read(str(output))
    assert {"token_accuracy", "loss"} <= next(line for line in lines if line["split"] == "train").keys()


@pytest.mark.parametrize(
    ("flag", "what"), [("--do_eval", "loss"), ("--do_predict", "loss"), ("--do_predict", "predictions")]
)
def test_non_finite_outputs_are_not_written(folder, vocab_file, trained, flag, what):
    added = {"loss": 0.0, "predictions": 0.0} | {what: float("nan")}

    class Broken(FindTheWord):
        def losses(self, logits, batch):
            return super().losses(logits + added["loss"], batch)

        def prediction(self, logits, batch):
            return tf.cast(super().prediction(logits, batch), tf.float32) + added["predictions"]

    before = (trained[0] / "found.json").stat().st_mtime_ns
    message = rf"step 48 of .* is not finite \({what}\)"
    refused(message, train, folder, vocab_file, trained[0], flag, make_task=Broken)
    assert (trained[0] / "found.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "task.json: no such file"), ("{", "is damaged"), ('{"kind": "x"}', "is damaged"),],
)  # fmt: skip
def test_a_missing_or_damaged_description_is_refused(tmp_path, content, message):
    if content is not None:
        write(tmp_path / "task.json", content)
    refused(message, description.read, str(tmp_path))


def parsed(*flags):
    return parse(FineTuningSettings, ["--output_dir=out", "--do_train", "--do_eval", *flags])


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        (["--eval_strategy=epoch", "--num_train_epochs=3"], [3, 6, 10]),
        (["--eval_strategy=epoch", "--num_train_epochs=2.5"], [4, 8, 10]),
        (["--eval_strategy=epoch", "--num_train_epochs=20"], list(range(1, 11))),
        (["--eval_strategy=steps", "--eval_steps=4"], [4, 8, 10]),
        (["--eval_strategy=steps", "--eval_steps=5"], [5, 10]),
        (["--eval_strategy=steps", "--eval_steps=50"], [10]),
        ([], []),
    ],
)
def test_a_run_is_evaluated_at_these_steps(flags, steps):
    assert evaluation_steps(parsed(*flags), 10) == steps
    schedule = EvaluationSchedule(parsed(*flags), tf.distribute.get_strategy(), FindTheWord(""), "", 10, 0, dict)
    found = [0]
    while (step := schedule.next_after(found[-1])) is not None and len(found) <= len(steps):
        found.append(step)
    assert found == [0, *steps]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--eval_strategy=steps"], "--eval_strategy=steps needs --eval_steps; give a number of steps"),
        (["--eval_strategy=epoch", "--eval_steps=5"], "--eval_steps needs --eval_strategy=steps; add"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(flags, message):
    refused(message, parsed, *flags)


def test_the_first_of_equal_evaluations_is_the_best():
    scores = {step: {"accuracy": value} for step, value in {1: 0.5, 2: 0.7, 3: 0.7, 4: 0.6}.items()}
    found = Evaluations("accuracy", patience=2, scores=scores)
    assert (found.best_step, found.stopped_at, found.up_to(3).stopped_at) == (2, 4, None)
    assert Evaluations("accuracy", False, scores=scores).best_step == 1
    ties = Evaluations("accuracy", patience=2, scores={
        step: {"accuracy": 0.6, "loss": loss} for step, loss in {1: 0.9, 2: 0.7, 3: 0.7, 4: 0.8}.items()
    })  # fmt: skip
    assert (ties.best_step, ties.stopped_at) == (2, 4), "of equal ones, that with the lower loss"
    assert dataclasses.replace(ties, higher_is_better=False).best_step == 2
    assert (Evaluations().best_step, Evaluations(patience=1).stopped_at) == (None, None)


@pytest.mark.parametrize("text", ["{", "[]", '{"evaluations": [{"step": 1}]}'])
def test_damaged_evaluations_are_refused(tmp_path, text):
    (tmp_path / evaluations.NAME).write_text(text)
    refused(r"evaluations.json: is damaged", evaluations.read, str(tmp_path))


def test_a_best_checkpoint_that_is_lost_is_an_error(tmp_path):
    evaluations.write(str(tmp_path), Evaluations("f1", scores={3: {"f1": 0.9}, 6: {"f1": 0.8}}))
    tf.train.Checkpoint(global_step=tf.Variable(6)).write(f"{tmp_path}/ckpt-6")
    newest = ResumePoint(f"{tmp_path}/ckpt-6")
    message = r"best checkpoint .* \(.*ckpt-3 is missing\); .*--use_checkpoint=last"
    refused(message, choose, str(tmp_path), newest, "best")
    assert choose(str(tmp_path), newest, "last") == newest


@pytest.fixture(scope="module")
def plain(folder, vocab_file, tmp_path_factory):
    """A run without evaluation during training, with a checkpoint of step 9."""
    output = tmp_path_factory.mktemp("plain")
    train(folder, vocab_file, output, "--do_train", "--num_train_epochs=5", "--save_checkpoints_steps=9")
    return output


@pytest.mark.slow
def test_a_killed_run_ends_early_with_the_same_best(folder, vocab_file, tmp_path, plain):
    run, evaluated, steps = settings(folder, vocab_file, tmp_path, *EARLY, "--keep_checkpoint_max=1"), [], {}

    class Scored(FindTheWord):
        """Has known scores, and predicts logits. The first evaluation of step 4 is killed."""

        def prediction(self, logits, batch):
            return logits[..., 1]

        def scores(self, split, predictions):
            # evaluations follow a checkpoint of their weights
            step = steps.setdefault(predictions.tobytes(), checkpoint_folder.newest_intact(str(tmp_path)).step)
            evaluated.append(step)
            if evaluated == [2, 4]:
                raise Killed
            return {"exact_rows": SCORES[step]}

    with pytest.raises(Killed):
        run_finetuning(run, lambda _: Scored(folder))
    assert checkpoint_folder.newest_intact(str(tmp_path)).step == 4 and list(
        evaluations.read(str(tmp_path)).scores
    ) == [2]
    assert run_finetuning(run, lambda _: Scored(folder))["exact_rows"] == 0.5
    assert evaluated == [2, 4, 4, 7, 9, 4]
    assert "global_step = 4" in (tmp_path / "eval_results.txt").read_text(), "the files belong to the best step"
    lines = metrics_file.read(str(tmp_path))
    assert [line["step"] for line in lines if line["split"] == "dev"] == [2, 4, 7, 9]
    recorded = json.loads((tmp_path / evaluations.NAME).read_text())
    assert recorded["best_step"] == 4 and [entry["step"] for entry in recorded["evaluations"]] == [2, 4, 7, 9]
    assert list(checkpoint_folder.numbered(str(tmp_path))) == [9] and checkpoint_folder.best_weights(str(tmp_path)) == [
        f"{tmp_path}/best-4"
    ]
    assert_same_weights(tmp_path / "ckpt-9", plain / "ckpt-9")
    _assert_a_finished_run_stays_as_it_is(run, tmp_path, Scored(folder))
    assert evaluated[6:] == [4] and len(steps) == 4, "the resumed run and a later command evaluate the same weights"


def _assert_a_finished_run_stays_as_it_is(run, path, task):
    run_finetuning(run, lambda _: task)
    assert list(checkpoint_folder.numbered(str(path))) == [9]
    for use, step in (("best", 4), ("last", 9)):
        assert chosen_checkpoint.of_finished(str(path), use).step == step
    shutil.copytree(path, path / "other")
    with open(path / "other" / evaluations.NAME, "w") as file:
        json.dump(json.loads((path / evaluations.NAME).read_text()) | {"patience": 0}, file)
    refused("newest intact checkpoint has step 9 of 12", run_folder.check_finished, str(path / "other"), 9, False)
    text = (path / evaluations.NAME).read_text()
    (path / evaluations.NAME).write_text(text.replace("12 examples", "13 examples"))
    refused(r"evaluations.json: belongs to other dev data \(dev.txt, 13 examples", run_finetuning, run, lambda _: task)


@pytest.fixture(scope="module")
def prepared(folder, vocab_file, tmp_path_factory):
    """A run with its data, and a function that changes the run's flags."""
    flags = ["--do_train", "--num_train_epochs=5", "--do_lower_case"]

    def resolved(output, *more):
        return strategies.with_devices(settings(folder, vocab_file, output, *flags, *more))

    given = resolved(tmp_path_factory.mktemp("prepared"))
    run = prepared_run.prepare(given, FindTheWord(folder), strategies.make_strategy(given))
    return lambda output, *more: dataclasses.replace(run, settings=resolved(output, *more))


@pytest.mark.slow
def test_the_seed_decides_order_weights_and_dropout(prepared, folder, vocab_file, tmp_path):
    drawn = {}
    for name, more in {"plain": [], "again": [], "other": ["--random_seed=5"]}.items():
        flags = ["--do_train", "--num_train_epochs=1", *more]
        train(folder, vocab_file, tmp_path / name, *flags)
        start = weights(tmp_path / name / "ckpt-0")
        at_start = [
            start[f"{path}/.ATTRIBUTES/VARIABLE_VALUE"].tolist() for path in ("model/head/kernel", "random_seed")
        ]
        drawn[name] = [prepared("out", *more).training_plan(12).ids.tolist(), *at_start]
    same = {name: [a == b for a, b in zip(drawn[name], drawn["plain"], strict=True)] for name in ("again", "other")}
    assert same == {"again": [True] * 3, "other": [False] * 3}


@pytest.mark.parametrize(("steps", "warned"), [(99, True), (100, False)])
def test_few_steps_are_warned_of(caplog, steps, warned):
    prepared_run.warn_of_few_steps(parsed("--num_train_epochs=2.5"), steps)
    assert (
        "only 99 steps (--num_train_epochs=2.5, --train_batch_size=32), and a model rarely learns" in caplog.text
    ) == warned


def test_seeds_and_rates_belong_to_a_runs_identity(prepared):
    plain = prepared("out").phase(12).optimizer
    for flag, message in [
        ("--random_seed=3", "random_seed was 12345, is 3"),
        ("--frozen_layers=1", "frozen_layers was 0, is 1"),
        ("--layer_learning_rate_decay=0.9", "layer_learning_rate_decay was 1.0, is 0.9"),
    ]:
        assert identity.differences(plain, prepared("out", flag).phase(12).optimizer) == [message]
