"""Trains a model for a task several times, with several settings and restarts, and keeps the best run.

Each trial is an ordinary run in its own folder, which resumes by itself.

Paper: appendix A.3 (search over batch size, learning rate and epochs), section 4.1 (random restarts).
"""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping

import tensorflow as tf
from absl import logging

from bert_tf.core import command_line
from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies, workarounds, workers
from bert_tf.finetuning import data_summary, evaluated_data, sweep_results
from bert_tf.finetuning.prepared_run import PreparedRun
from bert_tf.finetuning.sweep_results import PRETRAINED, TRANSFERRED, Results, Trial
from bert_tf.finetuning.task import Task
from bert_tf.runs import checkpoint_folder, evaluations, run_folder
from bert_tf.settings import FineTuningSettings
from bert_tf.training import metrics_file
from bert_tf.training.metrics import NotFinite


def run_sweep(
    run: PreparedRun, lock: run_folder.Lock | None, execute: Callable[[PreparedRun, run_folder.Lock | None], Mapping]
) -> dict[str, float]:
    """Trains the trials of a sweep, predicts with the best trial if the settings ask for it, and returns its metrics.
    The data is read and encoded only once.
    `run`: the sweep's command.
    `execute`: function that trains, evaluates and predicts as the settings of a single run request."""
    settings = run.settings
    results = find_results(settings, run.task)
    for trial in results.trials:  # raises all errors before the training
        of_trial = dataclasses.replace(run, settings=trial_settings(settings, trial))
        of_trial.check_batches()
        if trial.is_trained:
            _check_trained(of_trial)
        if settings.do_predict:
            prediction_settings(settings, trial)
    data_summary.log(run)
    if lock:
        lock.make_folder()
    if not all(trial.is_trained for trial in results.trials):
        run = run.with_teacher_outputs()

    def run_trial(settings: FineTuningSettings) -> Mapping[str, float]:
        with run_folder.Lock(settings.output_dir) if lock else contextlib.nullcontext() as own:
            return execute(dataclasses.replace(run, settings=settings), own)

    best = train(settings, run.task, run.strategy, results, run_trial).best
    if settings.do_predict:
        predicted = dataclasses.replace(run, settings=prediction_settings(settings, best))
        predicted.check_batches()
        execute(predicted, None)
    return dict(best.scores)


def _check_trained(run: PreparedRun) -> None:
    """Refuses a recorded trial that was trained or evaluated with other settings or other data than the command's."""
    folder, dev = run.settings.output_dir, run.data_ids["dev"]
    compared = ("eval_strategy", "eval_steps", "early_stopping_patience", "use_checkpoint", *run.settings.tuned_on_dev)
    run_folder.check_trained(folder, run.phase(run.num_train_steps()), compared)
    recorded = evaluations.read(folder).data
    if not evaluated_data.is_same(recorded, dev):
        raise InputError(
            f"{folder}: was evaluated on other dev data ({recorded}, now {dev}); give another --output_dir"
        )


def trial_settings(settings: FineTuningSettings, trial: Trial) -> FineTuningSettings:
    """Returns the settings of a trial: the settings of a single run, without the flags of a sweep."""
    varied = dict(trial.combination)
    if (steps := varied.pop(PRETRAINED, None)) is not None:
        varied["init_checkpoint"] = checkpoint_folder.at_step(_pretrained_folder(settings), steps)
    return dataclasses.replace(
        settings,
        **varied,
        **command_line.without(type(settings), "sweep"),
        random_seed=settings.random_seed + trial.restart - 1,
        output_dir=sweep_results.folder_of(settings.output_dir, trial),
        do_predict=False,
    )


def prediction_settings(settings: FineTuningSettings, trial: Trial) -> FineTuningSettings:
    """Returns the settings for a prediction with a trained trial; the prediction uses the trial's tuned thresholds."""
    no_training = command_line.without(type(settings), "do_train", "do_eval")
    return dataclasses.replace(trial_settings(settings, trial), **no_training | {"do_predict": True})


def find_results(settings: FineTuningSettings, task: Task) -> Results:
    """Returns the state of a new or resumed sweep: the recorded trials, and the trials that the command adds."""
    folder = settings.output_dir
    if checkpoint_folder.prefixes(folder):
        raise InputError(f"--output_dir={folder}: holds a single run; give another folder for the sweep")
    planned = planned_trials(settings)
    if not sweep_results.exists(folder):
        return Results(task.name, tuple(planned))
    recorded = sweep_results.read(folder)
    names = {trial.name for trial in recorded.trials}
    added = [trial for trial in planned if trial.name not in names]
    return dataclasses.replace(recorded, trials=(*recorded.trials, *added))


def planned_trials(settings: FineTuningSettings) -> list[Trial]:
    """Returns the trials of a command: the first restarts of all combinations, then the second restarts, and so on."""
    axes = {PRETRAINED: _pretrained_steps(settings), TRANSFERRED: settings.transferred, **settings.grid}
    trials = []
    for restart, *values in itertools.product(range(1, settings.sweep_restarts + 1), *axes.values()):
        varied = {name: value for name, value in zip(axes, values, strict=True) if value is not None}
        start = "".join(f"{word}{varied[name]}_" for name, word in ((PRETRAINED, "step"), (TRANSFERRED, "layers"))
                        if name in varied)  # fmt: skip
        rate, batch, epochs = (f"{varied[name]:.15g}" for name in settings.grid)
        trials.append(Trial(f"{start}lr{rate}_batch{batch}_epochs{epochs}_restart{restart}", varied, restart))
    return trials


def _pretrained_steps(settings: FineTuningSettings) -> list[int | None]:
    """Returns the steps of the initial checkpoints; [None] if the only initial checkpoint is `init_checkpoint`."""
    if not settings.sweep_checkpoints:
        return [None]
    steps = sorted(checkpoint_folder.numbered(_pretrained_folder(settings)))
    if not steps or steps[0] < 0:
        raise InputError(
            f"--sweep_checkpoints: {settings.init_checkpoint} holds no numbered checkpoints; give the folder of a "
            "pre-training run (--keep_checkpoint_max makes this run keep more checkpoints)"
        )
    return steps


def _pretrained_folder(settings: FineTuningSettings) -> str:
    path = settings.init_checkpoint
    return path if tf.io.gfile.isdir(path) else os.path.dirname(path) or "."


def train(
    settings: FineTuningSettings, task: Task, strategy: tf.distribute.Strategy, results: Results,
    run_trial: Callable[[FineTuningSettings], Mapping[str, float]],
) -> Results:  # fmt: skip
    """Trains the trials that are not trained yet, and records each result. Only the best trial keeps its checkpoints.
    `strategy`: strategy of the training; all workers call this function.
    `results`: the state of the sweep; see `find_results`.
    `run_trial`: function that trains a trial and returns its metrics on the dev data, the main metric first."""
    folder, higher_is_better = settings.output_dir, {each.name: each.higher_is_better for each in task.metrics}
    workers.check_same_facts(strategy, {"sweep": dataclasses.asdict(results)})
    _record(folder, results, strategy)
    for number, trial in enumerate(results.trials):
        if trial.is_trained:
            continue
        logging.info("trial %d of %d: %s", number + 1, len(results.trials), trial.name)
        with workarounds.released_graphs():
            trained = _train_trial(trial, run_trial, trial_settings(settings, trial))
        trials = (*results.trials[:number], trained, *results.trials[number + 1 :])
        results = dataclasses.replace(results, trials=trials)
        results = dataclasses.replace(results, higher_is_better=higher_is_better.get(results.metric, True))
        _record(folder, results, strategy)
    if not results.best:
        raise InputError(
            f"{folder}: all {len(results.trials)} trials of the sweep have failed ({results.trials[0].error}); give "
            "lower --sweep_learning_rates and another --output_dir"
        )
    columns = [[cell.rjust(max(map(len, column))) for cell in column] for column in zip(*results.table(), strict=True)]
    logging.info("the sweep's trials:\n%s", "\n".join(map("  ".join, zip(*columns, strict=True))))
    logging.info("the best trial is %s", sweep_results.folder_of(folder, results.best))
    if strategies.is_chief(strategy):
        metrics_file.write_results(folder, {f"eval_{name}": value for name, value in results.best.scores.items()})
    return results


def _train_trial(trial: Trial, run_trial: Callable, settings: FineTuningSettings) -> Trial:
    try:
        return dataclasses.replace(trial, scores=dict(run_trial(settings)))
    except NotFinite as error:
        logging.warning("%s has failed: %s", trial.name, error)
        return dataclasses.replace(trial, error=str(error))


def _record(folder: str, results: Results, strategy: tf.distribute.Strategy) -> None:
    if strategies.is_chief(strategy):
        sweep_results.write(folder, results)
        for trial in results.trials:
            if trial.is_trained and trial != results.best:
                checkpoint_folder.delete_all(sweep_results.folder_of(folder, trial))
    workers.wait_for_chief(strategy, os.path.join(folder, sweep_results.NAME))
