"""Evaluates the mean predictions of several models, and writes them into prediction files.

Paper: Tables 2 and 3 (the ensemble of seven systems).
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import checkpoints
from bert_tf.config import BertConfig
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies
from bert_tf.finetuning import (
    data_summary,
    description,
    dev_share,
    evaluated_data,
    prediction_files,
    prepared_run,
    resolution,
)
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.evaluated_data import EvaluatedData
from bert_tf.finetuning.evaluation import evaluate_rows
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.finetuning.prepared_run import PreparedRun
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import Task
from bert_tf.runs import chosen_checkpoint, evaluations, latest, run_folder, run_record
from bert_tf.settings import FineTuningSettings
from bert_tf.training import metrics, traced_graphs
from bert_tf.training.session import session

# Facts of a run's data that `dev_share.check_not_trained_on` checks.
_OF_DEV_SHARE = {"dev_share", "dev_seed"}


@dataclasses.dataclass(frozen=True)
class Member:
    """A trained model of an ensemble.

    Attributes:
      folder: folder of the model's run.
      prefix: prefix of the model's checkpoint.
    """

    folder: str
    prefix: str


def run_ensemble(
    settings: FineTuningSettings, make_task: Callable[[Command], Task], paths: Sequence[str]
) -> dict[str, float]:
    """Evaluates an ensemble, and predicts with it, as the settings request; writes the results into `output_dir`.

    `ensemble.json` in this folder lists the checkpoints. A later command with this folder must name the same
    checkpoints, with the same weights, because the folder may also have thresholds that were tuned for these weights.

    Args:
      settings: settings of a command that does not train.
      make_task: function that returns the task of all models; see `resolution.resolve`.
      paths: folders of runs, or prefixes of checkpoints. For a folder, `use_checkpoint` chooses the checkpoint.

    Returns:
      The metrics of the evaluation; {} without `do_eval`.

    Raises:
      InputError: a model is missing; a model has a different task, head, row length or vocabulary than the first model;
        two paths name the same checkpoint; or the folder has a run or another ensemble.
      NotFinite: the predictions of a model are not finite.
    """
    members = [_member(path, settings) for path in paths]
    if run_record.read_phases(settings.output_dir):
        raise InputError(f"--output_dir={settings.output_dir}: holds a run; give another folder for the ensemble")
    _refuse_twice(members)
    _refuse_other(settings.output_dir, members)
    storage.check_writable(settings.output_dir, "output_dir")
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
        # Find the dev data now, so that flags that contradict this data raise an error before any model runs.
        evaluated = _dev_data(run, settings, members).shown if settings.do_eval else evaluated_data.DEV
        data_summary.log(run, evaluated)
        configs = [_checked_config(run, member, members[0]) for member in members]
        splits = ["dev"] if settings.do_eval else []
        splits += ["test"] if settings.do_predict and not (task.test_is_dev and settings.do_eval) else []
        means = _mean_predictions(run, dict(zip(members, configs, strict=True)), splits, evaluated)
        if not strategies.is_chief(strategy):
            return {}
        return _write(run, settings, members, means)


def _member(path: str, settings: FineTuningSettings) -> Member:
    if not tf.io.gfile.isdir(path):
        if not tf.io.gfile.exists(f"{path}.index"):
            raise InputError(f"{path}: no such folder or checkpoint; name the folders of fine-tuning runs")
        return Member(os.path.dirname(path) or ".", path)
    return Member(path, chosen_checkpoint.of_finished(path, settings.use_checkpoint, settings.allow_unfinished).prefix)


def _refuse_twice(members: Sequence[Member]) -> None:
    """Refuses a checkpoint that two paths name, such as a folder and a prefix, because the model would count twice."""
    paths = [run_folder.resolved_path(member.prefix) for member in members]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise InputError(f"--ensemble_checkpoints: {twice} is given twice; give each model once")


def _refuse_other(folder: str, members: Sequence[Member]) -> None:
    """Refuses a folder with the results of other models, or of other weights of the same models."""
    path = os.path.join(folder, latest.ENSEMBLE_NAME)
    if not tf.io.gfile.exists(path):
        return
    with storage.json_file(path, "give another --output_dir") as entries:
        known = sorted(map(run_folder.resolved_path, entries["checkpoints"]))
        weights = dict(entries["weights"])
    if known != sorted(run_folder.resolved_path(member.prefix) for member in members):
        raise InputError(
            f"--output_dir={folder}: holds the results of another ensemble ({', '.join(known)}); give another folder"
        )
    for prefix, digest in _weights(members).items():
        if weights.get(prefix) != digest:
            raise InputError(
                f"--output_dir={folder}: holds the results of earlier weights of {prefix}, which were replaced since; "
                "give another folder"
            )


def _weights(members: Sequence[Member]) -> dict[str, str]:
    """Returns a fingerprint of each checkpoint's index file, which contains the checksums of all weights."""
    return {
        run_folder.resolved_path(member.prefix): run_folder.fingerprint([f"{member.prefix}.index"], whole=True)[0]
        for member in members
    }


def _checked_config(run: PreparedRun, member: Member, first: Member) -> BertConfig:
    """Returns a model's configuration; refuses a model that cannot be combined with the first model."""
    config = checkpoints.read_config(os.path.join(member.folder, checkpoints.CONFIG_NAME))
    expected = dataclasses.replace(run, config=config).model_facts()
    for phase in run_record.read_phases(member.folder)[-1:]:
        if different := run_folder.differences(phase.model, expected):
            other = "the flags of this command" if member == first else f"the model in {first.folder}"
            raise InputError(
                f"--ensemble_checkpoints: {member.folder} differs from {other} ({'; '.join(different)}); an ensemble "
                "needs models with the same task, head, vocabulary and casing, and the flags of their training"
            )
    dev_share.check_not_trained_on(run.task, member.folder)
    described = description.read(member.folder)
    length = described.max_seq_length
    if length != run.settings.max_seq_length:
        raise InputError(
            f"{member.folder}: was trained with --max_seq_length={length}, but the first model with "
            f"{run.settings.max_seq_length}; an ensemble needs models with the same row length"
        )
    _refuse_other_values(run, member, described)
    return config


def _refuse_other_values(run: PreparedRun, member: Member, described: TaskDescription) -> None:
    """Refuses a model whose rows or answers would be made with other values than in the model's own run.

    All models get the rows and the decoding of the first model, so the results would depend on the order of the models.
    A flag of the command, such as `--n_best_size`, sets the decoding for all models.
    """
    used = {**run.task.data_facts(), **run.task.evaluation_facts()}
    given = {name for name in run.task.evaluation_facts() if getattr(run.settings, name, None) is not None}
    known = {**described.data, **described.evaluation}
    compared = [name for name in used if name in known and name not in given | _OF_DEV_SHARE]
    own, first = ({name: facts[name] for name in compared} for facts in (known, used))
    if different := run_folder.differences(own, first):
        raise InputError(
            f"{member.folder}: has other values than the first model ({'; '.join(different)}); leave this model out; "
            "or, if a flag of the evaluation differs, give the flag"
        )


def _mean_predictions(
    run: PreparedRun, configs: Mapping[Member, BertConfig], splits: Sequence[str], evaluated: str
) -> dict[str, np.ndarray]:
    """Maps each split to the mean of all models' predictions, float32, with the shape of one model's predictions."""
    sums: dict[str, np.ndarray] = {}
    for member, config in configs.items():
        logging.info("predicting with %s", member.prefix)
        with traced_graphs.released():
            for split, predictions in _predictions(run, member, config, splits, evaluated).items():
                total = float(np.sum(predictions, dtype=np.float64))
                metrics.require_finite({f"predictions for {split}": total}, member.prefix)
                sums[split] = sums.get(split, 0.0) + predictions.astype(np.float64)
    return {split: (total / len(configs)).astype(np.float32) for split, total in sums.items()}


def _predictions(
    run: PreparedRun, member: Member, config: BertConfig, splits: Sequence[str], evaluated: str
) -> dict[str, np.ndarray]:
    with run.strategy.scope():
        model = FineTunedBert(config, run.make_head)
    tf.train.Checkpoint(model=model).restore(member.prefix).expect_partial()
    objective = FineTuningObjective(model, run.task)
    found = {}
    for split in splits:
        size = run.settings.eval_batch_size if split == "dev" else run.settings.predict_batch_size
        make_batches = run.batches(split, run.evaluation_plan(split, size))
        count, what = len(run.splits[split]), f"predicting {evaluated if split == 'dev' else split}"
        found[split], _ = evaluate_rows(objective, run.task, run.strategy, make_batches, count, what=what)
    return found


def _write(
    run: PreparedRun, settings: FineTuningSettings, members: Sequence[Member], means: dict[str, np.ndarray]
) -> dict[str, float]:
    folder, task, scores = settings.output_dir, run.task, {}
    tf.io.gfile.makedirs(folder)
    paths = [run_folder.resolved_path(member.prefix) for member in members]
    entries = {"checkpoints": paths, "weights": _weights(members), "settings": dataclasses.asdict(settings)}
    storage.write_text(os.path.join(folder, latest.ENSEMBLE_NAME), json.dumps(entries, indent=2) + "\n")
    if "dev" in means:
        split, predictions = task.by_example(run.splits["dev"], means["dev"])
        scores = task.scores(split, predictions)
        data = _dev_data(run, settings, members)
        evaluated_data.become_dev(folder, data)
        evaluated_data.keep(folder, data, task, "dev", split, predictions, scores, None)
        metrics.require_finite(scores, "the ensemble")
        if settings.do_predict and task.test_is_dev and not data.is_dev:
            prediction_files.write(folder, task, split, predictions)
    if "test" in means:
        split, predictions = task.by_example(run.splits["test"], means["test"])
        prediction_files.write(folder, task, split, predictions)
        if task.is_labeled(split.examples):
            data = evaluated_data.find_test(folder, run.data_ids["test"], _dev_of(members))
            task = evaluated_data.without_tuning(task, settings)
            found = task.scores(split, predictions)
            evaluated_data.keep(folder, data, task, "test", split, predictions, found, None)
    return scores


def _dev_data(run: PreparedRun, settings: FineTuningSettings, members: Sequence[Member]) -> EvaluatedData:
    return evaluated_data.find(settings.output_dir, run.data_ids["dev"], settings, _dev_of(members))


def _dev_of(members: Sequence[Member]) -> str:
    """Returns the dev data of the first model whose run has dev data; "" if no run has dev data."""
    return next(filter(None, (evaluations.read(member.folder).data for member in members)), "")
