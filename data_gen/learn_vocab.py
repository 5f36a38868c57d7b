"""Learns a WordPiece vocabulary from text.

learn_vocab --input_file=corpus.txt --output_file=vocab.txt --vocab_size=8000

The special tokens come first ([PAD] has id 0), followed by --num_unused reserved slots. The published
vocabularies place their [unusedN] between [PAD] and [UNK] instead. To extend an existing vocabulary:

learn_vocab --input_file=corpus.txt --output_file=new.txt --extend_vocab=vocab.txt --vocab_size=31522
"""

from bert_tf.core import command_line
from data_gen.settings import VocabularySettings


def main(settings: VocabularySettings) -> None:
    from data_gen.vocabulary import learn_vocabulary

    learn_vocabulary(settings)


run = command_line.script_of(VocabularySettings, main, __doc__)

if __name__ == "__main__":
    run()
