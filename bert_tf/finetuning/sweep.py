"""Trains a model for a task several times, with several settings and restarts, and keeps the best run.

Paper: appendix A.3 (search over batch size, learning rate and epochs), section 4.1 (random restarts).
"""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping

import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies, workers
from bert_tf.finetuning import initial, sweep_results
from bert_tf.finetuning.sweep_results import FAILED, FINISHED, PENDING, Results, Trial
from bert_tf.finetuning.task import Task
from bert_tf.runs import latest, run_checkpoints, run_folder, run_record
from bert_tf.settings import FineTuningSettings
from bert_tf.settings.protocol import SWEEP_FLAGS, ProtocolSettings
from bert_tf.training import metrics_file, traced_graphs
from bert_tf.training.metrics import NotFinite

# Optimizer facts that differ between trials, or that are computed from facts that differ between trials.
_OF_A_TRIAL = (
    *sweep_results.VARIED, "num_train_steps", "num_warmup_steps", "num_schedule_steps", "random_seed",
    sweep_results.TRANSFERRED,
)  # fmt: skip
# Settings that all trials of a sweep share. They must not change when the sweep resumes; see `facts_of`.
_OF_A_SWEEP = (
    "warmup_proportion", "random_seed", "eval_strategy", "eval_steps", "early_stopping_patience", "use_checkpoint",
)  # fmt: skip


def with_best_trial(settings: FineTuningSettings) -> FineTuningSettings:
    """Returns the settings; if `output_dir` contains a sweep, the folder of the best trial replaces `output_dir`.

    If the command itself runs a sweep, this function returns the settings unchanged.

    Raises:
      InputError: a single run would be trained in a sweep's folder, or another script has trained in this folder; see
        also `sweep_results.best_folder` and `sweep_results.refuse_lost`.
    """
    folder = settings.output_dir
    sweep_results.refuse_lost(folder)
    if settings.sweep or not sweep_results.exists(folder):
        run_folder.check_script(folder, settings.script, settings.do_train)
        return settings
    if settings.do_train:
        raise InputError(
            f"--output_dir={folder}: holds a sweep; add the sweep's flags to resume it, or give another folder"
        )
    best = sweep_results.best_folder(folder, settings.allow_unfinished)
    logging.info("%s is a sweep; its best trial is %s", folder, best)
    run_folder.check_script(best, settings.script, settings.do_train)
    return dataclasses.replace(settings, output_dir=best)


def trial_settings(settings: FineTuningSettings, trial: Trial) -> FineTuningSettings:
    """Returns the settings of a trial: the settings of a single run, without the flags of a sweep."""
    defaults = {field.name: field.default for field in dataclasses.fields(ProtocolSettings)}
    return dataclasses.replace(
        settings,
        **trial.varied,
        **{name: defaults[name] for name in ("sweep", *SWEEP_FLAGS)},
        random_seed=trial.random_seed,
        transfer_layers=settings.transfer_layers if trial.transfer_layers is None else trial.transfer_layers,
        init_checkpoint=sweep_results.initial_checkpoint(settings, trial),
        output_dir=sweep_results.folder_of(settings.output_dir, trial),
        do_predict=False,
    )


def prediction_settings(settings: FineTuningSettings, trial: Trial) -> FineTuningSettings:
    """Returns the settings for a prediction with a trained trial; the prediction uses the trial's tuned thresholds."""
    no_training = {"do_train": False, "do_eval": False, "eval_strategy": "no", "eval_steps": 0}
    no_training |= dict.fromkeys(settings.tuned_on_dev, False)
    return dataclasses.replace(
        trial_settings(settings, trial), **no_training, early_stopping_patience=0, do_predict=True
    )


def facts_of(settings: FineTuningSettings, phase: run_record.Phase, task: Task) -> dict:
    """Returns the facts that all trials of a sweep have in common, as JSON stores them: tuples become lists.

    Args:
      settings: settings of the sweep.
      phase: the phase of a trial; the result is the same for every trial.
      task: task of the trials; identifies the dev data.
    """
    optimizer = {name: value for name, value in phase.optimizer.items() if name not in _OF_A_TRIAL}
    more = {name: getattr(settings, name) for name in (*_OF_A_SWEEP, *settings.tuned_on_dev)}
    # With --sweep_checkpoints, pre-training may still add checkpoints, so the weights do not identify the sweep.
    weights = "" if settings.sweep_checkpoints else initial.fingerprint(settings.init_checkpoint)
    more |= {"dev": task.fingerprint("dev"), "initial_weights": weights}
    return json.loads(json.dumps({**phase.model, **phase.data, **optimizer, **more}))


class Sweep:
    """A new or resumed sweep in a folder.

    A trial that is recorded as finished or failed is not trained again. If an earlier command had other sweep flags,
    that command's trials stay in the sweep, and the best trial may be among these trials.

    Args:
      settings: settings of the sweep.
      task: task of the trials.
      facts: function that returns the result of `facts_of` for the current files.
      strategy: strategy of the training; all workers call the same methods.

    Raises:
      InputError: the folder has a single run, or a sweep with other facts.
    """

    def __init__(
        self, settings: FineTuningSettings, task: Task, facts: Callable[[], dict], strategy: tf.distribute.Strategy
    ):
        self._settings, self._folder, self._facts, self._strategy = settings, settings.output_dir, facts, strategy
        self._higher_is_better = {metric.name: metric.higher_is_better for metric in task.metrics}
        if latest.prefixes(self._folder):
            raise InputError(f"--output_dir={self._folder}: holds a single run; give another folder for the sweep")
        planned = sweep_results.planned_trials(settings)
        self.results = Results(task.name, facts(), tuple(planned))
        if sweep_results.exists(self._folder):
            found = sweep_results.read(self._folder)
            self._refuse_others(found.facts)
            known = {trial.name for trial in found.trials}
            trials = (*found.trials, *(trial for trial in planned if trial.name not in known))
            self.results = dataclasses.replace(found, trials=trials)
        workers.check_same_facts(strategy, {"sweep": dataclasses.asdict(self.results)})

    def pending(self) -> list[Trial]:
        """Returns the trials that are not trained yet."""
        return [trial for trial in self.results.trials if trial.state == PENDING]

    def run(self, run_trial: Callable[[FineTuningSettings], Mapping[str, float]]) -> dict[str, float]:
        """Trains the trials that are not trained yet, and records the result of each trial.

        Args:
          run_trial: function that trains a trial and returns its metrics on the dev data, the main metric first.

        Returns:
          The metrics of the best trial.

        Raises:
          InputError: a trial cannot be trained, the data or the initial weights changed, or all trials have failed.
        """
        self._record()
        for trial in self.pending():
            number = self.results.trials.index(trial) + 1
            values = " ".join(f"{name}={value:.15g}" for name, value in trial.combination.items())
            logging.info("trial %d of %d: %s restart %d", number, len(self.results.trials), values, trial.restart)
            self._refuse_others(self.results.facts)
            with traced_graphs.released():
                trained = self._trained(trial, run_trial)
            self._record(trained)
        logging.info("the sweep's trials:\n%s", sweep_results.text_of(sweep_results.table(self.results)))
        best = self.results.best
        if not best:
            raise InputError(
                f"{self._folder}: all {len(self.results.trials)} trials of the sweep have failed "
                f"({self.results.trials[0].error}); give lower --sweep_learning_rates and another --output_dir"
            )
        logging.info("the best trial is %s", sweep_results.folder_of(self._folder, best))
        if strategies.is_chief(self._strategy):
            metrics_file.write_results(self._folder, {f"eval_{name}": value for name, value in best.scores.items()})
        return dict(best.scores)

    def _trained(self, trial: Trial, run_trial: Callable) -> Trial:
        start = time.monotonic()
        try:
            scores = dict(run_trial(trial_settings(self._settings, trial)))
        except NotFinite as error:
            logging.warning("%s has failed: %s", trial.name, error)
            return dataclasses.replace(trial, state=FAILED, error=str(error), seconds=time.monotonic() - start)
        return dataclasses.replace(trial, state=FINISHED, scores=scores, seconds=time.monotonic() - start)

    def _record(self, trial: Trial | None = None) -> None:
        """Writes the results, then deletes the checkpoints that are no longer needed."""
        if trial:
            main = next(iter(trial.scores), "")
            higher = self._higher_is_better.get(main, self.results.higher_is_better)
            self.results = dataclasses.replace(self.results.with_trial(trial), higher_is_better=higher)
        if strategies.is_chief(self._strategy):
            sweep_results.write(self._folder, self.results)
            for each in self.results.trials:
                if each.state != PENDING and each != self.results.best:
                    run_checkpoints.delete_all(sweep_results.folder_of(self._folder, each))
        workers.wait_for_chief(self._strategy, os.path.join(self._folder, sweep_results.NAME))

    def _refuse_others(self, recorded: Mapping) -> None:
        """Refuses to continue if the recorded trials were trained with other settings or other data."""
        if different := run_folder.differences(recorded, self._facts()):
            raise InputError(
                f"--output_dir={self._folder}: holds a sweep with other settings or data ({'; '.join(different)}); "
                "give the settings and data of this sweep to resume it, or give another folder"
            )
