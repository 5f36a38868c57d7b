"""Identifies the run in a folder, so that a folder never mixes two runs.

`run.json` lists the phases of training in the folder. Each phase has its settings, and the facts that identify the
model, the data and the optimizer. A later command must resume the run, or begin the run's next phase.
"""

import dataclasses
import glob
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.core import identity, lock, storage
from bert_tf.core.errors import InputError
from bert_tf.runs import checkpoint_folder, evaluations, run_record
from bert_tf.text.data_vocabulary import DataVocabulary

# Flags from which fine-tuning computes the number of steps and of warm-up steps.
_GIVES_STEPS = ("num_train_epochs", "warmup_proportion")
# The entry `model` of the facts that identify the model of `run_pretraining`.
PRETRAINING = "pretraining"


class Lock:
    """Keeps other training runs out of a folder until this run ends or is killed."""

    def __init__(self, output_dir: str):
        self._output_dir = output_dir
        self._lock = lock.FolderLock(
            output_dir,
            f"--output_dir={output_dir}: another run is training there; wait for it, stop it, or give another folder",
        )

    def __enter__(self) -> "Lock":
        storage.check_writable(self._output_dir, "output_dir")
        if tf.io.gfile.isdir(self._output_dir):
            self._lock.take()
        return self

    def __exit__(self, *_) -> None:
        self._lock.release()

    def make_folder(self) -> None:
        """Creates and locks the folder if it did not exist when the `with` block began."""
        if not self._lock.is_taken and "://" not in self._output_dir:
            tf.io.gfile.makedirs(self._output_dir)
            self._lock.take()


def is_training_data(fingerprint: Sequence[str], phases: Sequence[run_record.TrainingRecord]) -> bool:
    """Returns whether a run was trained on any of the files.
    `fingerprint`: `identity.fingerprint` of the files. Names are not compared, since a copy may have another name."""
    trained = {file for phase in phases for file in identity.without_names(phase.data.get("input_file", ()))}
    return not trained.isdisjoint(identity.without_names(fingerprint))


def initial_checkpoint(settings) -> str:
    """Returns the `init_checkpoint` from which a run starts; "" if the run has its own checkpoint."""
    return "" if run_record.read_phases(settings.output_dir) else settings.init_checkpoint


def takes_over(settings) -> bool:
    """Returns whether a command uses the fine-tuned model in `init_checkpoint` without training."""
    return not settings.do_train and bool(initial_checkpoint(settings))


def check_source(settings) -> None:
    """Refuses an `init_checkpoint` if `output_dir` already holds a model that was made from another checkpoint."""
    folder, path = settings.output_dir, settings.init_checkpoint
    if settings.do_train or not path or run_record.saved_step(folder) is None:
        return
    source = run_record.read_file(folder)[-1].optimizer.get("init_checkpoint", "")
    if resolved_path(source) != resolved_path(path):
        raise InputError(
            f"--init_checkpoint={path}: {folder} already holds the model of {source or 'another run'}; give another "
            "--output_dir, or leave --init_checkpoint out"
        )


def check_model(output_dir: str, model: Mapping, vocabulary: DataVocabulary | None = None) -> None:
    """Refuses a folder whose run has another model, or data with another vocabulary."""
    phases = run_record.read_phases(output_dir)
    if phases:
        _refuse_if_different(output_dir, "another model", phases[-1].model, model)
    for recorded in (phase.vocabulary for phase in phases if phase.vocabulary and vocabulary):
        DataVocabulary(**recorded).refuse(vocabulary)


def check_script(folder: str, script: str, do_train: bool) -> None:
    """Refuses a folder in which another script has trained.
    `script`: name of the current script, such as `run_squad`; "" for a Python caller, which accepts all runs."""
    phases = run_record.read_phases(folder)
    trained_by = phases[-1].script if phases else script
    if script == trained_by or "" in (script, trained_by):
        return
    remedy = f"train in another folder, for example with --init_checkpoint={folder}"
    if not do_train:
        remedy = f"give the folder of a run of {script}, or use {trained_by}"
    raise InputError(f"{folder}: holds a run of {trained_by}, not of {script}; {remedy}")


def check_finished(folder: str, trained_steps: int, allow_unfinished: bool) -> None:
    """Refuses a run whose training has not begun or is not finished. Early stopping also finishes a run.
    `allow_unfinished`: whether to accept an unfinished run that has trained at least one step."""
    last = _last_step(folder)
    if trained_steps >= last or _is_final_step(folder, trained_steps):
        return
    stands = f"{folder}: its newest intact checkpoint has step {trained_steps} of {last}"
    if not trained_steps:
        raise InputError(f"{stands}: training has not begun; train first")
    if not allow_unfinished:
        raise InputError(f"{stands}; finish the training, or give --allow_unfinished to use this checkpoint")
    logging.warning("%s", stands)


def warn_if_unfinished(checkpoint: str) -> None:
    """Warns if a checkpoint belongs to a run that has not reached its last step. There is no warning for a folder
    without a `run.json`. The function compares the step of the newest checkpoint with the run's last step, because the
    best checkpoint of a finished run may have any step."""
    folder, step = os.path.dirname(checkpoint) or ".", checkpoint_folder.step_of(checkpoint)
    if step < 0 or not run_record.exists(folder):
        return
    newest, last = max([step, *checkpoint_folder.numbered(folder)]), _last_step(folder)
    if newest < last and not _is_final_step(folder, newest):
        logging.warning("%s has step %d of %d: the training is not finished", checkpoint, step, last)


def _is_final_step(folder: str, step: int) -> bool:
    """Returns whether early stopping ended the run at this step, or the folder's saved model has this step."""
    return step in (evaluations.read(folder).stopped_at, run_record.saved_step(folder))


def _last_step(folder: str) -> int:
    return max((phase.optimizer["num_train_steps"] for phase in run_record.read_phases(folder)), default=0)


def check_phase(output_dir: str, phase: run_record.TrainingRecord, trained_steps: int) -> int:
    """Refuses a phase that is neither the folder's latest phase nor a valid next phase. A valid next phase has the same
    model and more steps, and starts after the last step of the previous phase. Nothing else differs, except in
    pre-training if the rows have another length (paper, A.2: first 128 tokens, then 512).
    `trained_steps`: step of the folder's latest checkpoint; 0 if there is none.
    Returns the number of completed steps on the phase's data."""
    phases = _begun(output_dir, trained_steps)
    if not phases:
        return 0
    if run_record.saved_step(output_dir) is not None:
        raise InputError(
            f"--output_dir={output_dir}: holds a saved model, whose training cannot continue; give another "
            f"--output_dir, with --init_checkpoint={output_dir} to start from its weights"
        )
    last = phases[-1]
    if not _is_same(last, phase) and not _continues(last, phase, trained_steps):
        _refuse_other(output_dir, last, phase)
    return trained_steps - last.first_step if last.data == phase.data else 0


def check_trained(output_dir: str, phase: run_record.TrainingRecord, compared: Sequence[str]) -> None:
    """Refuses a finished run that differs from a phase; the checkpoints of the run may have been deleted.
    `phase`: the phase as the current command would train it.
    `compared`: names of settings that must be equal too."""
    last = run_record.read_file(output_dir)[-1]
    settings = [{name: each.settings.get(name) for name in compared} for each in (last, phase)]
    _refuse_other(output_dir, last, phase)
    _refuse_if_different(output_dir, "other settings", *settings)


def begin(output_dir: str, phase: run_record.TrainingRecord, trained_steps: int) -> int:
    """Records a phase in a folder, for a new run, a resumed run, or the next phase of a run. For the arguments, the
    result and the errors, see `check_phase`."""
    done = check_phase(output_dir, phase, trained_steps)
    phases = _begun(output_dir, trained_steps)
    if not phases or not _is_same(phases[-1], phase):
        phases.append(dataclasses.replace(phase, first_step=trained_steps - done, begun_at=trained_steps))
        if len(phases) > 1:
            changes = [*identity.differences(phases[-2].data, phase.data), *_other_flags(phases[-2], phase)]
            logging.info("phase %d begins at step %d: %s", len(phases), trained_steps, "; ".join(changes))
            _warn_of_jump(*phases[-2:])
    elif phase.vocabulary and not phases[-1].vocabulary:  # an earlier start did not know the vocabulary
        phases[-1] = dataclasses.replace(phases[-1], vocabulary=phase.vocabulary)
    else:
        return done
    run_record.write(output_dir, phases)
    return done


def _warn_of_jump(before: run_record.TrainingRecord, after: run_record.TrainingRecord) -> None:
    old, new = (phase.optimizer["num_schedule_steps"] for phase in (before, after))
    if old != new:
        logging.warning(
            "the learning rate jumps here: its schedule ends at step %d in this phase, but at step %d in the previous "
            "phase", new, old,
        )  # fmt: skip


def _begun(output_dir: str, trained_steps: int) -> list[run_record.TrainingRecord]:
    """Returns the phases that the latest checkpoint has reached. The checkpoints of later phases have been lost."""
    return [phase for phase in run_record.read_phases(output_dir) if phase.begun_at <= trained_steps]


def _is_same(last: run_record.TrainingRecord, phase: run_record.TrainingRecord) -> bool:
    return (last.model, last.data) == (phase.model, phase.data) and not _different_optimizer_entries(last, phase)


def _different_optimizer_entries(last: run_record.TrainingRecord, phase: run_record.TrainingRecord) -> list[str]:
    """Returns the names of the optimizer's entries that differ. Different paths to the same file count as equal. If the
    recorded initial checkpoint no longer exists, any path is accepted, because the run has its own weights."""
    different = [
        key
        for key in dict.fromkeys([*last.optimizer, *phase.optimizer])
        if last.optimizer.get(key) != phase.optimizer.get(key)
    ]
    paths = [resolved_path(each.optimizer.get("init_checkpoint", "")) for each in (last, phase)]
    spelled = [each.settings.get("init_checkpoint", "") for each in (last, phase)]
    is_same_file = paths[0] == paths[1]
    is_same_spelling = bool(spelled[0]) and spelled[0] == spelled[1]
    if is_same_file or is_same_spelling or _is_gone(paths[0]):
        different = [key for key in different if key != "init_checkpoint"]
    return different


def _is_gone(path: str) -> bool:
    return bool(path) and "://" not in path and not tf.io.gfile.glob(f"{glob.escape(path)}*")


def resolved_path(path: str) -> str:
    """Returns a local path as an absolute path without links; other paths, such as hf://owner/model, are unchanged."""
    return os.path.realpath(path) if path and "://" not in path else path


def _continues(last: run_record.TrainingRecord, phase: run_record.TrainingRecord, trained_steps: int) -> bool:
    if trained_steps < last.optimizer["num_train_steps"] or last.model != phase.model:
        return False
    if phase.optimizer["num_train_steps"] <= last.optimizer["num_train_steps"]:
        return False
    another_length = phase.data.get("max_seq_length") != last.data.get("max_seq_length")
    schedule = {"num_train_steps", "num_warmup_steps", "num_schedule_steps"}
    same_but_longer = last.data == phase.data and schedule.issuperset(_different_optimizer_entries(last, phase))
    return same_but_longer or (another_length and phase.model.get("model") == PRETRAINING)


def _refuse_other(output_dir: str, last: run_record.TrainingRecord, phase: run_record.TrainingRecord) -> None:
    """Refuses a phase that is not the recorded phase; the error lists the differences of one part."""
    _refuse_if_different(output_dir, "another model", last.model, phase.model)
    _refuse_if_different(output_dir, "other data", last.data, phase.data)
    if _different_optimizer_entries(last, phase):
        raise InputError(
            f"--output_dir={output_dir}: holds a run with other flags ({'; '.join(_other_flags(last, phase))}); to "
            f"resume the run, give its flags; to train with the new flags, give a new --output_dir with "
            f"--init_checkpoint={output_dir}, which loads the weights but not the state of the optimizer"
        )


def _other_flags(last: run_record.TrainingRecord, phase: run_record.TrainingRecord) -> list[str]:
    """Describes the entries of the optimizer that differ, and the flags from which its steps are computed."""
    told = []
    for names, part in ((_different_optimizer_entries(last, phase), "optimizer"), (_GIVES_STEPS, "settings")):
        facts = ({_flag(name, phase): getattr(each, part).get(name) for name in names} for each in (last, phase))
        told += identity.differences(*facts)
    return told


def _flag(name: str, phase: run_record.TrainingRecord) -> str:
    """Returns the name of an optimizer's entry for messages; the name starts with dashes if the entry is a flag."""
    return f"--{name}" if name in phase.settings else name


def _refuse_if_different(output_dir: str, what: str, old: Mapping, new: Mapping) -> None:
    remedy = "give another folder, or, to resume the run, give its settings"
    identity.require_same(f"--output_dir={output_dir}: holds a run with {what}", old, new, remedy)
