r"""Trains, evaluates and runs a model that maps texts to vectors, for search and similarity.

run_embeddings --train_data_path=pairs.jsonl --eval_data_path=collection --init_checkpoint=pretrained \
      --output_dir=search_model --do_train --do_eval --train_batch_size=64 --learning_rate=2e-5

Training data has the columns anchor and positive, and any number of columns negative_1, ...; or sentence1, sentence2
and score; or only text. The other texts of a batch are negatives too, so large batches help:
--gradient_accumulation_steps divides a batch into micro-batches without a change of its loss or its gradients.
"""

from bert_tf.core import command_line
from bert_tf.task_script import main
from bert_tf.tasks.embeddings.settings import EmbeddingSettings

run = command_line.script_of(EmbeddingSettings, main, __doc__)

if __name__ == "__main__":
    run()
