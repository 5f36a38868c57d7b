"""From the flags, the run's folder and the checkpoint's files to the settings and the task of a run, once.

A flag that is left out has the value of the training of the run in the folder, else its default. `Command` states the
rule for a flag that differs.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.core.errors import InputError
from bert_tf.finetuning import description, sweep
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.task import Task
from bert_tf.settings import FineTuningSettings


@dataclasses.dataclass(frozen=True)
class Command:
    """The flags of a command beside the record of the run in its folder; a kind makes its task from them.

    The rule for an evaluation or a prediction with another flag than the run was trained with:

    - A flag that would change the model or its inputs is refused (`of_model`).
    - A flag that says how a file is read is used, with one warning (`of_reading`), since another file may have other
      columns. But a forgotten flag would give wrong metrics without a sign.

    A training continues with the flags that it began with; `run_folder.check` refuses any other.

    Attributes:
      settings: the flags.
      trained: the record, `task.json`; None if nothing is trained in the folder.
      results_dir: folder of the thresholds that evaluations have chosen. An ensemble has a folder of its own for them.
    """

    settings: FineTuningSettings
    trained: TaskDescription | None
    results_dir: str

    @classmethod
    def of(cls, settings: FineTuningSettings) -> "Command":
        """Reads the record.

        Raises:
          InputError: see `description.of_run`.
        """
        return cls(settings, description.of_run(settings), settings.output_dir)

    def of_model(self, **defaults: Any) -> dict[str, Any]:
        """Returns flags that change the model or its inputs: as given, else as in the record, else by default.

        Raises:
          InputError: an evaluation or a prediction gives another value than the training had.
        """

        def refuse(difference: str) -> None:
            raise InputError(f"{difference}; leave the flag out")

        return self._flags(defaults, defaults, refuse)

    def of_reading(self, **defaults: Any) -> dict[str, Any]:
        """Returns flags that say how a file is read: as given, else as in the record, else by default."""

        def warn(difference: str) -> None:
            logging.warning("%s; leave the flag out unless this data differs from the training data", difference)

        return self._flags(defaults, {}, warn)

    def _flags(self, defaults: Mapping, unrecorded: Mapping, tell: Callable[[str], None]) -> dict[str, Any]:
        """Returns the values of flags.

        Args:
          defaults: of the flags, by their names.
          unrecorded: what the record means where it lacks a flag.
          tell: called with each difference from the record in words.
        """
        settings, known, found = self.settings, self.trained, {}
        recorded = {**unrecorded, **known.parameters, **known.data} if known else {}
        if known:
            recorded |= {"max_seq_length": known.max_seq_length, "bilstm_head": known.bilstm_head}
        for flag, default in defaults.items():
            given, before = getattr(settings, flag), recorded.get(flag)
            if flag in recorded and not settings.do_train and given not in (None, before):
                was = "none" if before in (None, "") else before
                tell(f"--{flag}={given}: {settings.output_dir} was trained with {was}")
            found[flag] = next((value for value in (given, before) if value is not None), default)
        return found


def resolve(settings: FineTuningSettings, make_task: Callable[[Command], Task]) -> tuple[FineTuningSettings, Task]:
    """Returns the complete settings of a run, and its task.

    A sweep's folder is replaced by the folder of its best trial, unless the command trains. The model's files and its
    casing come from the run's folder or from --init_checkpoint. The row length comes from encoded data, else from the
    record, else it is the script's default, or the number of positions of a model that has fewer.

    Args:
      settings: the flags.
      make_task: returns the task of a command.

    Raises:
      InputError: the flags, the folder, the checkpoint and the data do not fit each other.
    """
    command = Command.of(sweep.with_best_trial(settings))
    settings, task = command.settings, make_task(command)
    lower = checkpoint_tokenizer.lower_case(settings, settings.default_lower_case)
    files = checkpoints.model_files(settings, "bert_config_file", "vocab_file")
    shape = command.of_model(max_seq_length=task.row_length, bilstm_head=False)
    if shape["max_seq_length"] is None:
        positions = checkpoints.read_config(files["bert_config_file"]).max_position_embeddings
        shape["max_seq_length"] = min(settings.default_max_seq_length, positions)
    return dataclasses.replace(settings, do_lower_case=lower, **files, **shape), task
