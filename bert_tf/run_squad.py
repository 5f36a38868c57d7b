r"""Fine-tunes, evaluates and runs a model that answers questions about a text (paper: sections 4.2 and 4.3).

run_squad --train_file=train-v1.1.json --predict_file=dev-v1.1.json --init_checkpoint=pretrained \
      --output_dir=squad --do_train --do_eval
"""

import pathlib
import sys

if not __package__:  # The script was started by its path; the packages are one folder above.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from bert_tf.core import command_line
from bert_tf.task_script import main
from bert_tf.tasks.questions.settings import SquadSettings

run = command_line.script_of(SquadSettings, main, __doc__)

if __name__ == "__main__":
    run()
