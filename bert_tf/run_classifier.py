r"""Fine-tunes, evaluates and runs a classifier of one or two texts (paper: section 4.1).

python -m bert_tf.run_classifier --task_name=MRPC --data_dir=glue/MRPC --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=pretrained --output_dir=mrpc \
      --do_train --do_eval --learning_rate=2e-5
"""

import pathlib
import sys

if not __package__:  # run by path: the folder above holds the packages
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from bert_tf.core import command_line
from bert_tf.tasks.classification.settings import ClassifierSettings


def main(settings: ClassifierSettings) -> dict[str, float]:
    """Runs the script with resolved settings; returns the metrics of the evaluation."""
    settings.set_environment()
    from bert_tf import report
    from bert_tf.finetuning.engine import run_finetuning
    from bert_tf.finetuning.sweep import with_best_trial
    from bert_tf.tasks.classification.find import find_task
    from bert_tf.tasks.classification.records_task import with_row_length

    settings = with_row_length(with_best_trial(settings))
    return run_finetuning(settings, find_task(settings), report.write)


def run() -> None:
    """Runs the script with the process's flags."""
    command_line.run(ClassifierSettings, main, __doc__)


if __name__ == "__main__":
    run()
