r"""Creates masked-LM and next-sentence examples from text and writes them as TFRecords.

create_pretraining_data --input_file=corpus.txt --output_file=train.tfrecord \
      --vocab_file=vocab.txt --max_seq_length=128 --dupe_factor=5
"""

import pathlib
import sys

if not __package__:  # The script was started by its path; the packages are one folder above.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from bert_tf.core import command_line
from data_gen.settings import GeneratorSettings


def main(settings: GeneratorSettings) -> None:
    if settings.verify:
        from data_gen.generator import verify

        return verify(settings)
    from bert_tf.jobs.runner import started

    with started(settings, "data_gen.token_blocks", "data_gen.examples") as (settings, runner):
        from data_gen.generator import create_pretraining_data

        create_pretraining_data(settings, runner)


run = command_line.script_of(GeneratorSettings, main, __doc__)

if __name__ == "__main__":
    run()
