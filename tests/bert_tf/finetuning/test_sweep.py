"""Sweeps: trials, their records, resuming after a kill, and the choice of the best trial."""

import contextlib
import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import run_classifier, run_squad
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies
from bert_tf.finetuning import sweep, sweep_results
from bert_tf.finetuning.engine import run_finetuning
from bert_tf.finetuning.sweep import trial_settings
from bert_tf.finetuning.sweep_results import Results, Trial
from bert_tf.report import run_report
from bert_tf.runs import checkpoint_folder, run_record
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks.classification.multi_label import THRESHOLDS
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.questions import squad_results
from bert_tf.tasks.questions.settings import SquadSettings
from bert_tf.training.metrics import NotFinite
from tests.bert_tf.finetuning.killed_run import Killed, assert_same_weights
from tests.bert_tf.finetuning.word_task import FindTheWord, settings
from tests.bert_tf.pretrained_folder import write_pretrained

RATES = [1e-3, 2e-3, 3e-3]


def parsed(output, *flags):
    given = ["--do_train", "--do_eval", "--sweep", "--sweep_batch_sizes=8", "--sweep_epochs=2", *flags]
    return parse(FineTuningSettings, [f"--output_dir={output}", *given])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sweep_learning_rates="], "--sweep_learning_rates=: '' is not a number above 0"),
        (["--sweep_learning_rates=1e-5,x"], "'x' is not a number above 0"),
        (["--sweep_learning_rates=1e-5,nan"], "'nan' is not a number above 0"),
        (["--sweep_batch_sizes=16,1.5"], "'1.5' is not a whole number above 0"),
        (["--sweep_batch_sizes=16,0"], "'0' is not a whole number above 0"),
        (["--learning_rate=1e-4"], "--learning_rate=0.0001 has no effect in a sweep; give --sweep_learning_rates="),
        (["--num_train_epochs=9"], "--num_train_epochs=9.0 has no effect in a sweep; give --sweep_epochs=9.0"),
        (["--init_checkpoint=x", "--sweep_transfer_layers=-1"], "'-1' is not a whole number above -1"),
    ],
)
def test_flags_of_no_sweep_are_refused(flags, message):
    with pytest.raises(InputError, match=message):
        parsed("out", *flags)


def test_the_grid_of_the_paper_is_the_default():
    run = parse(FineTuningSettings, ["--output_dir=out", "--do_train", "--do_eval", "--sweep", "--sweep_restarts=2"])
    trials = sweep.planned_trials(run)
    assert len(trials) == 2 * 3 * 2 * 3 and len({trial.name for trial in trials}) == len(trials)
    assert trials[0] == Trial("lr5e-05_batch16_epochs2_restart1", combination(5e-5, 16), 1)
    assert trials[-1] == Trial("lr2e-05_batch32_epochs4_restart2", combination(2e-5, 32, 4.0), 2)
    alone = ["--learning_rate=2e-5", "--train_batch_size=32", "--num_train_epochs=4", "--random_seed=12346"]
    output = f"--output_dir=out/trials/{trials[-1].name}"
    expected = parse(FineTuningSettings, [output, "--do_train", "--do_eval", *alone])
    assert trial_settings(run, trials[-1]) == expected


def combination(rate, batch=8, epochs=2.0):
    return {"learning_rate": rate, "train_batch_size": batch, "num_train_epochs": epochs}


def finished(rate, restart, score):
    return Trial(f"{rate}-{restart}", combination(rate), restart, {"f1": score, "loss": 0.1})


def test_results_summarize_each_combination(tmp_path):
    failed = dataclasses.replace(finished(2e-3, 2, 0.0), scores={}, error="diverged")
    trials = (finished(1e-3, 1, 0.5), finished(2e-3, 1, 0.6), finished(1e-3, 2, 0.9), failed)
    results = Results("toy", trials)
    first, second = results.combinations()
    assert first == {
        "learning_rate": 1e-3, "train_batch_size": 8, "num_train_epochs": 2.0, "finished": 2,
        "mean": pytest.approx(0.7), "deviation": pytest.approx(np.std([0.5, 0.9], ddof=1)), "best": 0.9,
    }  # fmt: skip
    assert (second["mean"], second["deviation"], second["finished"]) == (0.6, None, 1)
    assert results.best == trials[2]
    assert dataclasses.replace(results, higher_is_better=False).best == trials[0]
    tied = tuple(dataclasses.replace(finished(1e-3, n, 0.5), scores={"f1": 0.5, "loss": loss})
                 for n, loss in enumerate((0.3, 0.2, 0.4), 1))  # fmt: skip
    for higher in (True, False):
        assert dataclasses.replace(results, trials=tied, higher_is_better=higher).best == tied[1], "the lower loss"
    sweep_results.write(str(tmp_path), results)
    assert sweep_results.read(str(tmp_path)) == results
    assert json.loads((tmp_path / "results.json").read_text())["best"]["folder"] == "trials/0.001-2"
    assert results.table()[1] == ["0.001", "8", "2", "2", "0.7000", "0.2828", "0.9000"]


def test_report_shows_combinations_trials_and_best(tmp_path):
    failed = dataclasses.replace(finished(2e-3, 2, 0.0), scores={}, error="the loss <diverged>")
    pending = dataclasses.replace(finished(2e-3, 3, 0.0), scores={})
    trials = (finished(1e-3, 1, 0.5), finished(1e-3, 2, 0.9), failed, pending)
    sweep_results.write(str(tmp_path), Results("toy", trials))
    page = open(run_report.write_or_refuse(str(tmp_path))).read()
    assert "toy, 4 trials: 2 finished, 1 failed" in page and "<code>trials/0.001-2</code>: f1 0.9000" in page
    assert "the loss &lt;diverged&gt;" in page and "0.2828" in page


class Trials:
    """A fake training: writes a checkpoint, and returns the score for a learning rate, or raises a given exception."""

    def __init__(self, scores):
        self.scores, self.trained = scores, []

    def __call__(self, settings):
        self.trained.append(settings.learning_rate)
        checkpoint_folder.save(settings.output_dir, tf.train.Checkpoint(global_step=tf.Variable(1)), 1)
        score = self.scores[settings.learning_rate]
        if isinstance(score, BaseException):
            raise score
        return {"f1": score, "loss": 1.0}


def train_sweep(output, run_trial, *flags):
    given = parsed(output, f"--sweep_learning_rates={','.join(map(str, RATES))}", *flags)
    task = FindTheWord("nowhere")
    results = sweep.find_results(given, task)
    return dict(sweep.train(given, task, strategies.make_strategy(given), results, run_trial).best.scores)


def kept(output):
    """The learning rates of the trials that have a checkpoint."""
    trials = sweep_results.read(str(output)).trials
    return [
        t.combination["learning_rate"]
        for t in trials
        if checkpoint_folder.prefixes(sweep_results.folder_of(str(output), t))
    ]


@pytest.mark.core
def test_a_killed_sweep_trains_only_the_rest(tmp_path):
    scores = {1e-3: 0.5, 2e-3: NotFinite("it diverged"), 3e-3: Killed()}
    first = Trials(scores)
    with pytest.raises(Killed):
        train_sweep(tmp_path, first)
    finished, failed, pending = sweep_results.read(str(tmp_path)).trials
    assert finished.scores == {"f1": 0.5, "loss": 1.0} and failed.error == "it diverged" and not pending.is_trained
    assert kept(tmp_path) == [1e-3, 3e-3]  # the failed trial has no checkpoint; the killed trial resumes from its own
    with pytest.raises(InputError, match="1 of 3 trials of this sweep are not trained yet"):
        sweep_results.best_folder(str(tmp_path), False)
    best = f"{tmp_path}/trials/lr0.001_batch8_epochs2_restart1"
    assert sweep_results.best_folder(str(tmp_path), True) == best
    again = Trials(scores | {3e-3: 0.7})
    assert train_sweep(tmp_path, again) == {"f1": 0.7, "loss": 1.0}
    assert again.trained == [3e-3] and kept(tmp_path) == [3e-3]
    assert "eval_f1 = 0.7" in (tmp_path / "eval_results.txt").read_text()
    more = Trials({4e-3: 0.6})  # further values join the sweep
    assert train_sweep(tmp_path, more, "--sweep_learning_rates=4e-3") == {"f1": 0.7, "loss": 1.0}
    assert more.trained == [4e-3] and kept(tmp_path) == [3e-3]


def test_a_sweep_whose_trials_all_fail_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"all 3 trials of the sweep have failed \(it diverged\)"):
        train_sweep(tmp_path, Trials(dict.fromkeys(RATES, NotFinite("it diverged"))))
    with pytest.raises(InputError, match="no trial of this sweep has succeeded"):
        sweep_results.best_folder(str(tmp_path), False)


@pytest.fixture(scope="module")
def swept(folder, vocab_file, tmp_path_factory):
    """A sweep with a trial that diverges and a trial that is killed midway; returns folder, settings and scores."""
    output = tmp_path_factory.mktemp("swept")
    flags = ["--sweep", "--sweep_learning_rates=1e38,1e-2", "--sweep_batch_sizes=10", "--sweep_epochs=4"]
    do = ["--do_train", "--do_eval", "--do_predict", "--save_checkpoints_steps=5"]
    defaults = ["--train_batch_size=32", "--num_train_epochs=3", "--learning_rate=5e-5"]
    run = settings(folder, vocab_file, output, *do, *defaults, *flags)

    def save(folder, checkpoint, step, most):
        if step == 9:
            raise Killed
        return whole(folder, checkpoint, step, most)

    whole = checkpoint_folder.save
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_folder, "save", save)
        with pytest.raises(Killed):
            run_finetuning(run, lambda _: FindTheWord(folder))
    failed, killed = sweep_results.read(str(output)).trials
    assert failed.error and not killed.is_trained
    reported = []
    return output, run, run_finetuning(run, lambda _: FindTheWord(folder), reported.append), reported


@pytest.mark.slow
def test_trial_has_same_weights_as_single_run(folder, vocab_file, swept, tmp_path):
    best = swept[0] / "trials/lr0.01_batch10_epochs4_restart1"
    alone = settings(folder, vocab_file, tmp_path, "--do_train", "--do_eval", "--num_train_epochs=4")
    assert run_finetuning(alone, lambda _: FindTheWord(folder)) == swept[2]
    assert_same_weights(best / "ckpt-9", tmp_path / "ckpt-9")


@pytest.mark.slow
def test_the_best_trial_predicts(swept, folder, vocab_file, tmp_path):
    output, run, scores, reported = swept
    results = json.loads((output / "results.json").read_text())
    best = output / results["best"]["folder"]
    assert results["best"]["scores"] == scores and (best / "found.json").exists()
    assert "is not finite" in results["trials"][0]["error"]
    assert not list((output / "trials" / results["trials"][0]["name"]).glob("ckpt-*"))
    assert reported == [str(output)]
    before = {path: path.stat().st_mtime_ns for path in output.rglob("ckpt-*")}
    assert run_finetuning(run, lambda _: FindTheWord(folder)) == scores
    assert {path: path.stat().st_mtime_ns for path in output.rglob("ckpt-*")} == before, "it is not trained again"
    for changed, message in [
        ({"warmup_proportion": 0.5}, r"other flags \(num_warmup_steps .* --warmup_proportion was 0.1, is 0.5"),
        ({"eval_strategy": "epoch"}, r"other settings \(eval_strategy was 'no', is 'epoch'"),
    ]:
        with pytest.raises(InputError, match=message):
            run_finetuning(dataclasses.replace(run, **changed), lambda _: FindTheWord(folder))
    other = shutil.copytree(folder, tmp_path / "other")
    (other / "dev.txt").write_text("the man had the\n")
    with pytest.raises(
        InputError, match=r"was evaluated on other dev data \(dev.txt, 12 .*; give another --output_dir"
    ):
        run_finetuning(run, lambda _: FindTheWord(other))
    os.remove(best / "found.json")
    run_finetuning(settings(folder, vocab_file, output, "--do_predict"), lambda _: FindTheWord(folder))
    assert (best / "found.json").exists()


SWEEP_ONCE = ["--sweep", "--sweep_learning_rates=1e-2", "--sweep_batch_sizes=8", "--sweep_epochs=1"]
THREE = ["--do_train", "--do_eval", "--do_predict"]


@pytest.mark.slow
def test_a_sweep_predicts_by_its_best_thresholds(folder, vocab_file, tmp_path):
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.csv").write_text("text,label\n" + 'the man,"a,b"\nwho said so,\nall of you,b\n' * 4)
    files = [f"--bert_config_file={folder}/config.json", f"--vocab_file={vocab_file}", f"--output_dir={tmp_path}/out"]
    own = ["--task_name=own", f"--data_dir={tmp_path}", "--multi_label", "--tune_thresholds", "--max_seq_length=8"]
    run_classifier.main(parse(ClassifierSettings, [*files, *own, *THREE, *SWEEP_ONCE]))
    (trial,) = (tmp_path / "out/trials").iterdir()
    thresholds = THRESHOLDS.read(str(trial), 1, ("a", "b"))
    header, *rows = [line.split("\t") for line in (trial / "test_predictions.tsv").read_text().splitlines()]
    found = np.array([row[2:] for row in rows], float) > thresholds
    assert header[1] == "labels" and [json.loads(row[1]) for row in rows] == [
        [name for name, is_above in zip("ab", row, strict=True) if is_above] for row in found
    ]


@pytest.mark.slow
def test_a_sweep_predicts_by_its_null_threshold(folder, vocab_file, tmp_path):
    answer = {"text": "man", "answer_start": 4}
    asked = [{"id": f"q{n}", "question": "who ?", "answers": [answer] * (n % 2), "is_impossible": n % 2 == 0}
             for n in range(8)]  # fmt: skip
    (tmp_path / "v2.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "the man", "qas": asked}]}]}))
    files = [f"--bert_config_file={folder}/config.json", f"--vocab_file={vocab_file}", f"--output_dir={tmp_path}/out"]
    own = [f"--train_file={tmp_path}/v2.json", f"--predict_file={tmp_path}/v2.json", "--max_seq_length=16",
           "--max_query_length=4", "--version_2_with_negative", "--tune_null_threshold"]  # fmt: skip
    scores = run_squad.main(parse(SquadSettings, [*files, *own, *THREE, *SWEEP_ONCE]))
    (trial,) = (tmp_path / "out/trials").iterdir()
    assert squad_results.NULL_THRESHOLD.read(str(trial), step=1) == scores["null_threshold"]
    odds, answers = (json.loads((trial / name).read_text()) for name in ("null_odds.json", "predictions.json"))
    assert {id_: value <= scores["null_threshold"] for id_, value in odds.items()} == {
        id_: bool(text) for id_, text in answers.items()
    }


@pytest.mark.slow
def test_sweep_over_checkpoints_starts_from_each(tmp_path):
    pretrained = tmp_path / "pretrained"
    pretrained.mkdir()
    for step in (0, 100, 1000):
        checkpoint_folder.save(str(pretrained), tf.train.Checkpoint(global_step=tf.Variable(step)), step)
    flags = ["--sweep_checkpoints", f"--init_checkpoint={pretrained}", "--sweep_learning_rates=1e-3,2e-3"]
    output, started = tmp_path / "out", []

    def train(settings):
        started.append(settings.init_checkpoint)
        if len(started) == 4:
            raise Killed
        checkpoint_folder.save(settings.output_dir, tf.train.Checkpoint(global_step=tf.Variable(1)), 1)
        return {"f1": int(started[-1].rpartition("-")[2]) / 2000 + settings.learning_rate, "loss": 1.0}

    for _ in range(2):  # killed in the middle, and resumed
        with contextlib.suppress(Killed):
            train_sweep(output, train, *flags)
    steps = [0, 0, 100, 100, 100, 1000, 1000]  # the second trial of step 100 was killed
    assert started == [f"{pretrained}/ckpt-{step}" for step in steps]
    results = sweep_results.read(str(output))
    assert len(results.trials) == 6 and results.trials[2].name == "step100_lr0.001_batch8_epochs2_restart1"
    steps, means = zip(*results.best_by(sweep_results.PRETRAINED), strict=True)
    assert steps == (0, 100, 1000) and means == pytest.approx((0.002, 0.052, 0.502))
    head, best, *_ = results.table()
    assert head[:2] == ["pre-training steps", "learning rate"] and best[:2] == ["1000", "0.002"]
    run_report.write(str(output))
    assert "f1 over pre-training steps" in (output / "report.html").read_text()
    checkpoint_folder.save(str(pretrained), tf.train.Checkpoint(global_step=tf.Variable(1)), 2000)
    train_sweep(output, train, *flags)  # pre-training has meanwhile continued
    assert started[7:] == [f"{pretrained}/ckpt-2000"] * 2


@pytest.mark.slow
def test_a_sweep_over_transferred_layers_has_a_curve(tmp_path, vocab_file):
    write_pretrained(tmp_path / "pretrained", vocab_file)
    for split in ("train", "dev"):
        rows = "".join(f"{text}\t{label}\n" for text, label in [("the man said", "a"), ("all of you", "b")] * 8)
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{rows}")
    run_classifier.main(parse(ClassifierSettings, [
        "--task_name=own", f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out", "--do_train", "--do_eval",
        f"--init_checkpoint={tmp_path}/pretrained", "--max_seq_length=16", "--sweep", "--sweep_batch_sizes=8",
        "--sweep_learning_rates=1e-3", "--sweep_epochs=2", "--sweep_transfer_layers=0,3",
    ]))  # fmt: skip
    results = sweep_results.read(f"{tmp_path}/out")
    assert [trial.combination["transfer_layers"] for trial in results.trials] == [0, 3]
    assert results.trials[0].scores["loss"] != results.trials[1].scores["loss"]
    recorded = run_record.last_settings(f"{tmp_path}/out/trials/{results.trials[1].name}")
    assert recorded["transfer_layers"] == 3 and results.trials[1].name.startswith("layers3_lr0.001_")
    assert "accuracy over layers transferred" in (tmp_path / "out/report.html").read_text()


def test_sweep_over_checkpoints_requires_checkpoints(tmp_path):
    with pytest.raises(InputError, match="holds no numbered checkpoints; give the folder of a pre-training run"):
        train_sweep(tmp_path / "out", None, "--sweep_checkpoints", f"--init_checkpoint={tmp_path}")
