r"""Fine-tunes, evaluates and runs a model that chooses one of several texts, as on SWAG (paper: section 4.4).

run_swag --data_dir=swag --init_checkpoint=pretrained --output_dir=swag_model \
      --do_train --do_eval --train_batch_size=16 --learning_rate=2e-5

The data is SWAG's .csv files, or JSON Lines. Each JSON object has the keys context (a text) and choices (a list of
texts). For training and evaluation it also has the key label (the index of the right choice, from 0, or the text of the
right choice). Optional keys are start or question (a text before each choice) and id (name of the example in prediction
files). The number of choices may differ between examples.
"""

from bert_tf.core import command_line
from bert_tf.task_script import main
from bert_tf.tasks.choice.settings import SwagSettings

run = command_line.script_of(SwagSettings, main, __doc__)

if __name__ == "__main__":
    run()
