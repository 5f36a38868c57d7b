r"""Pre-trains BERT with the masked LM and next-sentence prediction (paper: section 3.1, appendix A.2).

run_pretraining --bert_config_file=bert_config.json --input_file='train*.tfrecord' \
      --output_dir=pretrained --do_train --do_eval --num_train_steps=10000 --num_warmup_steps=1000
"""

import pathlib
import sys

if not __package__:  # The script was started by its path; the packages are one folder above.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from bert_tf.core import command_line
from bert_tf.settings import PretrainingSettings


def main(settings: PretrainingSettings) -> None:
    settings.set_environment()
    from bert_tf import report
    from bert_tf.pretraining.engine import run_pretraining

    scores = run_pretraining(settings, report.write)
    if settings.do_train:
        report.conclude(settings.output_dir, scores, f"run_classifier --init_checkpoint={settings.output_dir}")


run = command_line.script_of(PretrainingSettings, main, __doc__)

if __name__ == "__main__":
    run()
