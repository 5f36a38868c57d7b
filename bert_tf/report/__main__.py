r"""Writes a run's report.html again from the files in the run's folder.

bert_report pretrained

The folder is the --output_dir of a script that trains. Several folders may be given.
"""

import functools
import os
from collections.abc import Sequence

from absl import app

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import exit_code, parse_flags


def main(words: Sequence[str]) -> int:
    """Writes the report of each folder on the command line; returns the exit code."""

    def write_all():
        if len(words) < 2:
            raise InputError("name the folder of a run: bert_report FOLDER")
        from bert_tf.report import run_report

        for folder in words[1:]:
            print(run_report.write_or_refuse(folder))

    return exit_code(write_all)


def run() -> None:
    """Runs the script with the process's arguments."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3 takes a second to import
    app.run(main, flags_parser=functools.partial(parse_flags, doc=__doc__))


if __name__ == "__main__":
    run()
