"""What the scripts that fine-tune have in common: settings to a task, and the task to a run."""

import functools
from collections.abc import Callable

from bert_tf.core import command_line
from bert_tf.settings import FineTuningSettings


def script_of(settings_class: type[FineTuningSettings], doc: str) -> Callable[[], None]:
    """Returns a function that runs the script of these settings with the process's flags.

    Args:
      settings_class: of the script; a kind of task in `tasks.registry` has it.
      doc: what `--help` says of the script.
    """
    return functools.partial(command_line.run, settings_class, main, doc)


def main(settings: FineTuningSettings) -> dict[str, float]:
    """Runs a script with resolved settings; returns the metrics of the evaluation."""
    settings.set_environment()
    from bert_tf import report
    from bert_tf.finetuning.engine import run_finetuning
    from bert_tf.finetuning.ensemble import run_ensemble
    from bert_tf.tasks import registry

    make_task = registry.of_settings(settings).make_task
    if settings.ensemble_members:
        return run_ensemble(settings, make_task, settings.ensemble_members)
    return run_finetuning(settings, make_task, report.write)
