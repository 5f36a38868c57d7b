r"""Fine-tunes, evaluates and runs a tagger of named entities (paper: section 5.3).

run_ner --data_dir=conll2003 --init_checkpoint=pretrained --output_dir=ner --do_train --do_eval \
      --do_predict --learning_rate=5e-5
"""

from bert_tf import task_script
from bert_tf.tasks.tagging.settings import NerSettings

main = task_script.main
run = task_script.script_of(NerSettings, __doc__)

if __name__ == "__main__":
    run()
