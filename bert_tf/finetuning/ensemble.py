"""Evaluates the mean predictions of several models, and writes them into prediction files.

Paper: Tables 2 and 3 (the ensemble of seven systems).
"""

import dataclasses
import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import checkpoints
from bert_tf.core import identity, storage
from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies, workarounds
from bert_tf.finetuning import data_summary, description, evaluated_data, prepared_run, resolution, sweep_results
from bert_tf.finetuning.evaluated_data import EvaluatedData
from bert_tf.finetuning.evaluation import evaluate_rows
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.finetuning.prepared_run import PreparedRun
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import Task
from bert_tf.runs import checkpoint_folder, chosen_checkpoint, evaluations, run_folder, run_record
from bert_tf.settings import FineTuningSettings
from bert_tf.text import tokenizer_files
from bert_tf.training import metrics
from bert_tf.training.session import session


@dataclasses.dataclass(frozen=True)
class Member:
    """A trained model of an ensemble: the folder of its run, and the prefix of its checkpoint."""

    folder: str
    prefix: str


def run_ensemble(
    settings: FineTuningSettings, make_task: Callable[[Command], Task], paths: Sequence[str]
) -> dict[str, float]:
    """Evaluates an ensemble, and predicts with it, as the settings request; writes the results into `output_dir`.
    `ensemble.json` in this folder lists the checkpoints. A later command with this folder must name the same
    checkpoints, because the folder may have thresholds that were tuned for them.
    `settings`: settings of a command that does not train.
    `make_task`: function that returns the task of all models; see `resolution.resolve`.
    `paths`: folders of runs, or prefixes of checkpoints. For a folder, `use_checkpoint` chooses the checkpoint.
    Returns the metrics of the evaluation; {} without `do_eval`.
    Raises NotFinite: the predictions of a model are not finite."""
    members = [_member(path, settings) for path in paths]
    _refuse_other_folder(settings.output_dir, members)
    storage.check_writable(settings.output_dir, "output_dir")
    settings = strategies.with_devices(settings)
    strategy = strategies.make_strategy(settings)
    with session(settings, strategy):
        # Use the vocabulary, casing and row length of the first model, but not its tuned thresholds.
        own = dataclasses.replace(settings, output_dir=members[0].folder)
        own, task = resolution.resolve(
            own, lambda command: make_task(dataclasses.replace(command, results_dir=settings.output_dir))
        )
        task.check_checkpoint(settings.output_dir, None)
        run = prepared_run.prepare(own, task, strategy)
        strategies.check_batch_sizes(strategy, own)
        if settings.do_eval and not _dev_data(run, settings, members).is_dev:
            evaluated_data.refuse_tuning(settings)
        data_summary.log(run)
        for member in members[1:]:
            _refuse_different(member, members[0])
        predicts_test = settings.do_predict and not (task.test_is_dev and settings.do_eval)
        sizes = {"dev": settings.eval_batch_size} if settings.do_eval else {}
        sizes |= {"test": settings.predict_batch_size} if predicts_test else {}
        means = _mean_predictions(run, members, sizes)
        return _write(run, settings, members, means) if strategies.is_chief(strategy) else {}


def _member(path: str, settings: FineTuningSettings) -> Member:
    path = sweep_results.best_folder(path, settings.allow_unfinished)
    if tf.io.gfile.isdir(path):
        chosen = chosen_checkpoint.of_finished(path, settings.use_checkpoint, settings.allow_unfinished)
        return Member(path, chosen.prefix)
    if not tf.io.gfile.exists(f"{path}.index"):
        raise InputError(f"{path}: no such folder or checkpoint; name the folders of fine-tuning runs")
    return Member(os.path.dirname(path) or ".", path)


def _refuse_other_folder(folder: str, members: Sequence[Member]) -> None:
    path = os.path.join(folder, checkpoint_folder.ENSEMBLE_NAME)
    holds = "a run" if run_record.read_phases(folder) else ""
    if tf.io.gfile.exists(path):
        with storage.json_file(path, "give another --output_dir") as entries:
            recorded = entries["checkpoints"]
        holds = "" if recorded == _paths(members) else f"the results of another ensemble ({', '.join(recorded)})"
    if holds:
        raise InputError(f"--output_dir={folder}: holds {holds}; give another folder for the ensemble")


def _paths(members: Sequence[Member]) -> list[str]:
    return sorted(run_folder.resolved_path(member.prefix) for member in members)


def _refuse_different(member: Member, first: Member) -> None:
    """Refuses a model whose task or vocabulary differs from the first model's, which all models use."""
    facts = []
    for each in (first, member):
        described = dataclasses.replace(description.read(each.folder), evaluation={})
        facts.append(dataclasses.asdict(described) | tokenizer_files.read(each.folder).facts)
    what = f"--ensemble_checkpoints: {member.folder} differs from {first.folder}"
    identity.require_same(what, *facts, "an ensemble needs models with the same task, labels and vocabulary")


def _mean_predictions(run: PreparedRun, members: Sequence[Member], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Maps each split to the mean of all models' predictions, float32, with the shape of one model's predictions."""
    sums: dict[str, np.ndarray] = {}
    for member in members:
        logging.info("predicting with %s", member.prefix)
        config = checkpoints.read_config(os.path.join(member.folder, checkpoints.CONFIG_NAME))
        with workarounds.released_graphs():
            with run.strategy.scope():
                model = FineTunedBert(config, run.make_head)
            tf.train.Checkpoint(model=model).restore(member.prefix).expect_partial()
            objective = FineTuningObjective(model, run.task)
            for split, size in sizes.items():
                batches, rows = run.batches(split, run.evaluation_plan(split, size)), len(run.splits[split])
                outputs, _ = evaluate_rows(
                    objective, run.task.prediction, run.strategy, batches, rows, what=f"predicting {split}"
                )
                total = float(np.sum(outputs, dtype=np.float64))
                metrics.require_finite({f"predictions for {split}": total}, member.prefix)
                sums[split] = sums.get(split, 0.0) + outputs.astype(np.float64)
    return {split: (total / len(members)).astype(np.float32) for split, total in sums.items()}


def _write(
    run: PreparedRun, settings: FineTuningSettings, members: Sequence[Member], means: dict[str, np.ndarray]
) -> dict[str, float]:
    folder, task, scores = settings.output_dir, run.task, {}
    tf.io.gfile.makedirs(folder)
    entries = {"checkpoints": _paths(members), "settings": dataclasses.asdict(settings)}
    storage.write_json(os.path.join(folder, checkpoint_folder.ENSEMBLE_NAME), entries)
    if "dev" in means:
        split, predictions = task.by_example(run.splits["dev"], means["dev"])
        scores = task.scores(split, predictions)
        data = _dev_data(run, settings, members)
        evaluated_data.become_dev(folder, data)
        evaluated_data.record(folder, data, task, split, predictions, scores, None)
        metrics.require_finite(scores, "the ensemble")
        if settings.do_predict and task.test_is_dev and not data.is_dev:
            evaluated_data.write_predictions(folder, data, task, split, predictions)
    if "test" in means:
        split, predictions = task.by_example(run.splits["test"], means["test"])
        data = evaluated_data.in_folder(folder, run.data_ids["test"], _dev_of(members))
        evaluated_data.write_predictions(folder, data, task, split, predictions)
        if task.is_labeled(split.examples):
            task = task.without_tuning(folder)
            evaluated_data.record(folder, data, task, split, predictions, task.scores(split, predictions), None)
    return scores


def _dev_data(run: PreparedRun, settings: FineTuningSettings, members: Sequence[Member]) -> EvaluatedData:
    data = run.data_ids["dev"]
    return evaluated_data.in_folder(settings.output_dir, data, _dev_of(members) or data)


def _dev_of(members: Sequence[Member]) -> str:
    """Returns the dev data of the first model whose run has dev data; "" if no run has dev data."""
    return next(filter(None, (evaluations.read(member.folder).data for member in members)), "")
