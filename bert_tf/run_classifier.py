r"""Fine-tunes, evaluates and runs a classifier of texts or pairs of texts (paper: section 4.1).

run_classifier --task_name=MRPC --data_dir=glue/MRPC --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=pretrained --output_dir=mrpc \
      --do_train --do_eval --learning_rate=2e-5
"""

import pathlib
import sys

if not __package__:  # The script was started by its path; the packages are one folder above.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from bert_tf import task_script
from bert_tf.tasks.classification.settings import ClassifierSettings

main = task_script.main
run = task_script.script_of(ClassifierSettings, __doc__)

if __name__ == "__main__":
    run()
