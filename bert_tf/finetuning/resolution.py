"""Resolves a run's settings and task from the flags, the run's folder and the checkpoint's files.

If a flag is left out, its value is the value with which the run in the folder was trained. Without such a run, the flag
has its default. `Command` states the rules for a flag that differs from the training.
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
    """The flags of a command, and the record of the run in `output_dir`. Each kind of task makes a task from a command.

    If a flag of an evaluation or a prediction differs from the training, these rules apply:

    - A flag that would change the model or its inputs is refused (`of_model`).
    - A flag that determines how a file is read is used, because another file may have other columns. But a warning is
      logged (`of_reading`), because otherwise nobody would notice that a wrong flag causes wrong metrics.

    A resumed training must have the flags with which it began; `run_folder.check` refuses other flags.

    Attributes:
      settings: the flags.
      trained: the run's record (`task.json`); None if the folder has no trained run.
      results_dir: folder of tuned thresholds; for an ensemble, this is not the folder of a model's run.
    """

    settings: FineTuningSettings
    trained: TaskDescription | None
    results_dir: str

    @classmethod
    def of(cls, settings: FineTuningSettings) -> "Command":
        """Returns the command with these settings and with the record in `output_dir`.

        Raises:
          InputError: see `description.of_run`.
        """
        return cls(settings, description.of_run(settings), settings.output_dir)

    def of_model(self, **defaults: Any) -> dict[str, Any]:
        """Returns the values of flags that change the model or its inputs.

        The value of a flag is the given value, else the recorded value, else the default.

        Raises:
          InputError: a flag of an evaluation or a prediction differs from the training.
        """

        def refuse(difference: str) -> None:
            raise InputError(f"{difference}; leave the flag out")

        return self._flags(defaults, defaults, refuse)

    def of_reading(self, **defaults: Any) -> dict[str, Any]:
        """Returns the values of flags that determine how a file is read.

        The value of a flag is the given value, else the recorded value, else the default.
        """

        def warn(difference: str) -> None:
            logging.warning("%s; leave the flag out unless this data differs from the training data", difference)

        return self._flags(defaults, {}, warn)

    def of_evaluation(self, **defaults: Any) -> dict[str, Any]:
        """Returns the values of flags that determine only how predictions become answers.

        The value of a flag is the given value, else the recorded value, else the default.
        """
        return self._flags(defaults, {}, lambda difference: None)

    def _flags(self, defaults: Mapping, unrecorded: Mapping, tell: Callable[[str], None]) -> dict[str, Any]:
        """Returns the values of flags.

        Args:
          defaults: maps flag names to default values.
          unrecorded: maps flag names to the values with which a run was trained if its record lacks the flag.
          tell: function that is called with a description of each difference from the record.
        """
        settings, known, found = self.settings, self.trained, {}
        recorded = {**unrecorded, **known.parameters, **known.data, **known.evaluation} if known else {}
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

    If the command does not train and its folder contains a sweep, the folder of the best trial replaces the sweep's
    folder. The model's files and the casing come from the run's folder or from --init_checkpoint. The row length comes
    from the flag, else from the record, else from encoded data. Otherwise, the row length is the script's default or
    the model's number of positions, whichever is smaller.

    Args:
      settings: the flags.
      make_task: function that returns the task of a command.

    Raises:
      InputError: the flags, the folder, the checkpoint or the data contradict each other.
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
