r"""Finds texts that a model takes for the positive of an anchor, and writes them as negatives for `run_embeddings`.

mine_negatives --init_checkpoint=search_model --input_file=pairs.jsonl --corpus_file=corpus.jsonl \
      --output_file=mined.jsonl --min_rank=5 --max_rank=50 --margin=0.05
"""

from bert_tf.core import command_line
from bert_tf.tasks.embeddings.settings import MiningSettings


def main(settings: MiningSettings) -> None:
    from bert_tf.mining import mine

    mine(settings)


run = command_line.script_of(MiningSettings, main, __doc__)

if __name__ == "__main__":
    run()
