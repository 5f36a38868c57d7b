r"""Fine-tunes, evaluates and runs a model that answers questions on a text (paper: sections 4.2 and 4.3).

python -m bert_tf.run_squad --train_file=train-v1.1.json --predict_file=dev-v1.1.json --init_checkpoint=pretrained \
      --output_dir=squad --do_train --do_eval
"""

import pathlib
import sys

if not __package__:  # run by path: the folder above holds the packages
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from bert_tf.core import command_line
from bert_tf.tasks.questions.settings import SquadSettings


def main(settings: SquadSettings) -> dict[str, float]:
    """Runs the script with resolved settings; returns the metrics of the evaluation."""
    settings.set_environment()
    from bert_tf import report
    from bert_tf.finetuning.engine import run_finetuning
    from bert_tf.finetuning.ensemble import run_ensemble
    from bert_tf.finetuning.sweep import with_best_trial
    from bert_tf.tasks.questions.squad_task import squad_task

    if settings.ensemble_members:
        return run_ensemble(settings, squad_task(settings), settings.ensemble_members)
    settings = with_best_trial(settings)
    return run_finetuning(settings, squad_task(settings), report.write)


def run() -> None:
    """Runs the script with the process's flags."""
    command_line.run(SquadSettings, main, __doc__)


if __name__ == "__main__":
    run()
