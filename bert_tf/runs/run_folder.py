"""The identity of a run's folder, so that a folder never mixes two runs.

`run.json` lists the phases that were trained into the folder, each with its settings and fingerprints of model, data
and optimizer. A later start must be the same run, or the next phase of it.
"""

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.core import lock, storage
from bert_tf.core.errors import InputError
from bert_tf.runs import early_stopping, evaluations, latest, run_record
from bert_tf.text.data_vocabulary import DataVocabulary

# Flags that fine-tuning computes the numbers of steps from.
_GIVES_STEPS = ("num_train_epochs", "warmup_proportion")


class Lock:
    """Locks a folder against a second training run until this run ends or is killed."""

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
        """Creates and locks the folder if it did not exist yet.

        Raises:
          InputError: another run has created it in the meantime.
        """
        if not self._lock.is_taken and "://" not in self._output_dir:
            tf.io.gfile.makedirs(self._output_dir)
            self._lock.take()
            if latest.prefixes(self._output_dir):
                raise InputError(f"--output_dir={self._output_dir}: another run has just trained there; start again")


def fingerprint(paths: Sequence[str]) -> list[str]:
    """Returns the name, the size and a hash of both ends of each file, which identify it at any location."""
    entries = []
    for path in paths:
        size = tf.io.gfile.stat(path).length
        with tf.io.gfile.GFile(path, "rb") as file:
            digest = hashlib.sha256(file.read(1 << 20))
            file.seek(max(0, size - (1 << 20)))
            digest.update(file.read())
        entries.append(f"{os.path.basename(path)}, {size:,} bytes, {digest.hexdigest()[:16]}")
    return entries


def identify(prints: Sequence[str]) -> str:
    """Returns what identifies some files together, in the form of an entry of `fingerprint`."""
    if len(prints) < 2:
        return "".join(prints)
    digest = hashlib.sha256(json.dumps(without_names(prints)).encode()).hexdigest()[:16]
    return f"{prints[0].rsplit(', ', 2)[0]} and {len(prints) - 1:,} more, {len(prints):,} files, {digest}"


def is_training_data(prints: Sequence[str], phases: Sequence[run_record.Phase]) -> bool:
    """Returns whether a run was trained on any of the files.

    Args:
      prints: `fingerprint` of the files. Their names are not compared, since a copy may have another name.
      phases: of the run.
    """
    trained = {file for phase in phases for file in without_names(phase.data.get("input_file", ()))}
    return not trained.isdisjoint(without_names(prints))


def without_names(prints: Sequence[str]) -> list[str]:
    """Returns the entries of `fingerprint` without the files' names, which a copy may not have: sizes and hashes."""
    return [", ".join(entry.rsplit(", ", 2)[1:]) for entry in prints]


def initial_checkpoint(settings) -> str:
    """Returns the `init_checkpoint` to start from; "" if none is given or the run has its own checkpoint."""
    return settings.init_checkpoint if settings.do_train and not run_record.read_phases(settings.output_dir) else ""


def check_model(output_dir: str, model: Mapping, vocabulary: DataVocabulary | None = None) -> None:
    """Raises an error if the folder has a run of another model, or on data of another vocabulary.

    Raises:
      InputError: names the difference.
    """
    phases = run_record.read_phases(output_dir)
    for phase in phases[-1:]:
        _refuse(output_dir, "model", phase.model, model)
    for known in (phase.vocabulary for phase in phases if phase.vocabulary and vocabulary):
        DataVocabulary(**known).refuse(vocabulary)


def check_script(folder: str, script: str, do_train: bool) -> None:
    """Refuses a folder that another script has trained into.

    Args:
      folder: of a run, or a new one.
      script: the script that is running, as `run_squad`; "" for a caller from Python, for which any is right.
      do_train: whether it trains.

    Raises:
      InputError: names the script that trained.
    """
    phases = run_record.read_phases(folder)
    trained_by = phases[-1].script if phases else script
    if script == trained_by or "" in (script, trained_by):
        return
    remedy = f"train in another folder, for example from this one as --init_checkpoint={folder}"
    if not do_train:
        remedy = f"give the folder of a run of {script}, or use {trained_by}"
    raise InputError(f"{folder}: holds a run of {trained_by}, not of {script}; {remedy}")


def check_finished(folder: str, trained_steps: int, allow_unfinished: bool) -> None:
    """Refuses a run whose training has neither reached its last step nor ended early, or has not begun.

    Args:
      folder: the run's folder.
      trained_steps: step of the checkpoint that is to be used.
      allow_unfinished: whether an unfinished run is used; one without any step never is.

    Raises:
      InputError: names the step.
    """
    last = _last_step(folder)
    if trained_steps >= last or _ended_early(folder, trained_steps):
        return
    stands = f"{folder}: its newest intact checkpoint is of step {trained_steps} of {last}"
    if not trained_steps:
        raise InputError(f"{stands}: nothing is trained yet; train first")
    if not allow_unfinished:
        raise InputError(f"{stands}; finish the training, or give --allow_unfinished to use it as it is")
    logging.warning("%s", stands)


def warn_if_unfinished(checkpoint: str) -> None:
    """Warns of a checkpoint whose run has not reached its last step.

    A folder without a `run.json` gives no warning.
    The best checkpoint of a finished run may be of any step, so the newest one in the folder decides.

    Raises:
      InputError: the run's `run.json` is damaged.
    """
    folder, step = os.path.dirname(checkpoint) or ".", latest.step_of(checkpoint)
    if step < 0 or not run_record.exists(folder):
        return
    newest, last = max([step, *latest.numbered(folder)]), _last_step(folder)
    if newest < last and not _ended_early(folder, newest):
        logging.warning("%s: step %d of %d: its training is not finished", checkpoint, step, last)


def _ended_early(folder: str, step: int) -> bool:
    """Whether early stopping ended a run at a step, or a model was saved there."""
    return step in (early_stopping.stopped_at(evaluations.read(folder)), run_record.saved_step(folder))


def _last_step(folder: str) -> int:
    return max((phase.optimizer["num_train_steps"] for phase in run_record.read_phases(folder)), default=0)


def check(output_dir: str, phase: run_record.Phase, trained_steps: int) -> int:
    """Raises an error if the folder has another run than that of a phase.

    The next phase has the same model and more steps, and starts when the phase before has reached its last step. It has
    rows of another length (paper, A.2: 128 tokens first, then 512), or the same data with more steps.

    Args:
      output_dir: the run's folder.
      phase: the phase to train.
      trained_steps: step of the folder's latest checkpoint; 0 for none.

    Returns:
      The steps that were already trained on the phase's data.

    Raises:
      InputError: names the difference.
    """
    phases = _begun(output_dir, trained_steps)
    if not phases:
        return 0
    if run_record.saved_step(output_dir) is not None:
        raise InputError(
            f"--output_dir={output_dir}: holds a saved model, whose training cannot be continued; give another "
            f"--output_dir, with --init_checkpoint={output_dir} to start from its weights"
        )
    last = phases[-1]
    _refuse(output_dir, "model", last.model, phase.model)
    if not _is_same(last, phase) and not _continues(last, phase, trained_steps):
        if not _is_same_data(last, phase):
            _refuse(output_dir, "data", last.data, phase.data)
        _refuse_flags(output_dir, last, phase)
    return trained_steps - last.first_step if _is_same_data(last, phase) else 0


def phase_under_way(output_dir: str, phases: Sequence[run_record.Phase], trained_steps: int) -> int:
    """Returns the index of the command's phase that the folder began last, finished or not; 0 for none of them."""
    begun = _begun(output_dir, trained_steps)[-1:]
    same = [i for i, phase in enumerate(phases) for last in begun if _is_same(last, phase)]
    return max(same, default=0)


def check_next(before: run_record.Phase, after: run_record.Phase) -> None:
    """Raises an error if a phase cannot continue the phase before; see `check`.

    Raises:
      InputError: gives the reason.
    """
    first, last = before.optimizer["num_train_steps"], after.optimizer["num_train_steps"]
    if last <= first:
        raise InputError(
            f"--next_phase: --num_train_steps={last} must be above the {first} of the phase before; "
            "steps are counted from the first step of the first phase"
        )
    different = differences(before.model, after.model)
    if not different and not _continues(before, after, first):
        different = differences(before.data, after.data) + differences(before.optimizer, after.optimizer)
    if different:
        raise InputError(
            f"--next_phase: cannot continue the phase before ({'; '.join(different)}); it needs the same model, "
            "and rows of another --max_seq_length, or the same data and optimizer with more steps"
        )


def begin(output_dir: str, phase: run_record.Phase, trained_steps: int) -> int:
    """Registers a phase in a folder: a new run, a resumed run, or the phase after a finished one.

    Args, Returns, Raises: those of `check`.
    """
    done = check(output_dir, phase, trained_steps)
    phases = _begun(output_dir, trained_steps)
    if not phases or not _is_same(phases[-1], phase):
        phases.append(dataclasses.replace(phase, first_step=trained_steps - done, begun_at=trained_steps))
        if len(phases) > 1:
            logging.info("phase %d begins at step %d", len(phases), trained_steps)
            _warn_of_jump(*phases[-2:])
    elif phase.vocabulary and not phases[-1].vocabulary:  # it was unknown at the earlier start
        phases[-1] = dataclasses.replace(phases[-1], vocabulary=phase.vocabulary)
    else:
        return done
    run_record.write(output_dir, phases)
    return done


def _warn_of_jump(before: run_record.Phase, after: run_record.Phase) -> None:
    old, new = (phase.optimizer["num_schedule_steps"] for phase in (before, after))
    if old != new:
        logging.warning(
            "the learning rate jumps here: its schedule ends at step %d in this phase, at step %d in the one before",
            new, old,
        )  # fmt: skip


def _begun(output_dir: str, trained_steps: int) -> list[run_record.Phase]:
    """Returns the phases that the checkpoint has reached; after the loss of newer checkpoints these are not all."""
    return [phase for phase in run_record.read_phases(output_dir) if phase.begun_at <= trained_steps]


def _is_same(last: run_record.Phase, phase: run_record.Phase) -> bool:
    return _is_same_data(last, phase) and not _different_flags(last, phase)


def _different_flags(last: run_record.Phase, phase: run_record.Phase) -> list[str]:
    """Returns the names of the optimizer's flags that differ. Two spellings of the same path do not differ."""
    different = [
        key
        for key in dict.fromkeys([*last.optimizer, *phase.optimizer])
        if last.optimizer.get(key) != phase.optimizer.get(key)
    ]
    paths = [resolved_path(each.optimizer.get("init_checkpoint", "")) for each in (last, phase)]
    spelled = [each.settings.get("init_checkpoint", "") for each in (last, phase)]
    if paths[0] == paths[1] or spelled[0] == spelled[1] != "":
        different = [key for key in different if key != "init_checkpoint"]
    return different


def resolved_path(path: str) -> str:
    """Returns a local path as absolute and without links; others, such as hf://owner/model, as they are."""
    return os.path.realpath(path) if path and "://" not in path else path


def _is_same_data(last: run_record.Phase, phase: run_record.Phase) -> bool:
    return last.data == phase.data


def _continues(last: run_record.Phase, phase: run_record.Phase, trained_steps: int) -> bool:
    if trained_steps < last.optimizer["num_train_steps"]:
        return False
    if phase.optimizer["num_train_steps"] <= last.optimizer["num_train_steps"]:
        return False
    another_length = phase.data.get("max_seq_length") != last.data.get("max_seq_length")
    schedule = {"num_train_steps", "num_warmup_steps", "num_schedule_steps"}
    same_but_longer = _is_same_data(last, phase) and schedule.issuperset(_different_flags(last, phase))
    return another_length or same_but_longer


def _refuse_flags(output_dir: str, last: run_record.Phase, phase: run_record.Phase) -> None:
    flags = _different_flags(last, phase)
    if flags:
        told = [_difference(_flag(name, phase), last.optimizer.get(name), phase.optimizer.get(name)) for name in flags]
        told += [
            _difference(f"--{name}", last.settings.get(name), phase.settings.get(name))
            for name in _GIVES_STEPS
            if last.settings.get(name) != phase.settings.get(name)
        ]
        raise InputError(
            f"--output_dir={output_dir}: holds a run with other flags ({'; '.join(told)}); give its own flags to "
            f"resume it, or, to train with these, a new --output_dir with --init_checkpoint={output_dir}, which takes "
            "its weights but not the state of its optimizer"
        )


def _flag(name: str, phase: run_record.Phase) -> str:
    """Returns how messages name a fact of the optimizer; fine-tuning computes the numbers of steps from other flags."""
    return f"--{name}" if name in phase.settings else name


def _refuse(output_dir: str, what: str, old: Mapping, new: Mapping) -> None:
    if different := differences(old, new):
        raise InputError(
            f"--output_dir={output_dir}: holds a run of another {what} ({'; '.join(different)}); "
            "give another folder, or the run's own settings to resume it"
        )


def differences(old: Mapping, new: Mapping) -> list[str]:
    """Describes each entry that differs, for messages; of two lists, the first that differs; of two mappings, all."""
    found = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after)
        elif before != after:
            found.append(_difference(key, before, after))
    return found


def _difference(key: str, old, new) -> str:
    if isinstance(old, list) and isinstance(new, list):  # of many files, name the first that differs
        lengths = f" ({len(old)} before, {len(new)} now)" if len(old) != len(new) else ""
        pairs = itertools.zip_longest(old, new)
        at, (old, new) = next((at, pair) for at, pair in enumerate(pairs, 1) if pair[0] != pair[1])
        key = f"{key} number {at}{lengths}"
    return f"{key} was {old!r}, is {new!r}"
