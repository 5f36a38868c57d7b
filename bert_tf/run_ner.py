r"""Fine-tunes, evaluates and runs a tagger of named entities (paper: section 5.3).

run_ner --data_dir=conll2003 --init_checkpoint=pretrained --output_dir=ner --do_train --do_eval \
      --do_predict --learning_rate=5e-5
"""

from bert_tf.core import command_line
from bert_tf.task_script import main
from bert_tf.tasks.tagging.settings import NerSettings

run = command_line.script_of(NerSettings, main, __doc__)

if __name__ == "__main__":
    run()
