r"""Converts a BERT checkpoint to another format or to a larger vocabulary.

convert_checkpoint --input=uncased_L-12_H-768_A-12 --output=bert-base --format=hugging_face
"""

from bert_tf.core import command_line
from bert_tf.settings import ConversionSettings


def main(settings: ConversionSettings) -> None:
    from bert_tf.conversion import convert_checkpoint

    convert_checkpoint(settings)


run = command_line.script_of(ConversionSettings, main, __doc__)

if __name__ == "__main__":
    run()
