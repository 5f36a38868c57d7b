r"""Fine-tunes, evaluates and runs a tagger of named entities (paper: section 5.3).

python -m bert_tf.run_ner --data_dir=conll2003 --init_checkpoint=pretrained --output_dir=ner --do_train --do_eval \
      --do_predict --learning_rate=5e-5
"""

import pathlib
import sys

if not __package__:  # run by path: the folder above holds the packages
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from bert_tf.core import command_line
from bert_tf.tasks.tagging.settings import NerSettings


def main(settings: NerSettings) -> dict[str, float]:
    """Runs the script with resolved settings; returns the metrics of the evaluation."""
    settings.set_environment()
    from bert_tf import report
    from bert_tf.finetuning.engine import run_finetuning
    from bert_tf.finetuning.sweep import with_best_trial
    from bert_tf.tasks.tagging.tagging_data import tagging_task

    settings = with_best_trial(settings)
    return run_finetuning(settings, tagging_task(settings), report.write)


def run() -> None:
    """Runs the script with the process's flags."""
    command_line.run(NerSettings, main, __doc__)


if __name__ == "__main__":
    run()
