r"""Fine-tunes, evaluates and runs a classifier of texts or pairs of texts (paper: section 4.1).

run_classifier --task_name=MRPC --data_dir=glue/MRPC --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=pretrained --output_dir=mrpc \
      --do_train --do_eval --learning_rate=2e-5
"""

import pathlib
import sys

if not __package__:  # The script was started by its path; the packages are one folder above.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from bert_tf.core import command_line
from bert_tf.task_script import main
from bert_tf.tasks.classification.settings import ClassifierSettings

run = command_line.script_of(ClassifierSettings, main, __doc__)

if __name__ == "__main__":
    run()
