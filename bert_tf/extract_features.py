r"""Writes vectors for each token or each text, from layers of a pre-trained encoder (paper: section 5.3).

extract_features --input_file=input.txt --output_file=output.jsonl --init_checkpoint=pretrained \
      --layers=-1,-2,-3,-4 --max_seq_length=128
"""

import pathlib
import sys

if not __package__:  # The script was started by its path; the packages are one folder above.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from bert_tf.core import command_line
from bert_tf.settings import FeaturesSettings


def main(settings: FeaturesSettings) -> None:
    from bert_tf.jobs.runner import started

    with started(settings, "bert_tf.features.extract", **settings.devices) as (settings, runner):
        from bert_tf.features.extract import extract_features

        extract_features(settings, runner)


run = command_line.script_of(FeaturesSettings, main, __doc__)

if __name__ == "__main__":
    run()
