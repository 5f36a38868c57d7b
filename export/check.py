"""Checks an export: loads it with nothing but tensorflow and tensorflow_text, and replays its warm-up requests.

check_saved_model models/reviews/1

The output lists the signatures with inputs, outputs and methods. If anything is broken, the script prints one line and
ends with exit code 1.
"""

import functools
import os
import pathlib
import sys
import time
from collections.abc import Sequence

if not __package__:  # run by path: the folder above holds the packages
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from absl import app

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import exit_code, parse_flags


def check(folder: str) -> None:
    """Prints the signatures of an export and replays its requests.

    Raises:
      InputError: states what is broken.
    """
    from export import loading

    lines = list(loading.describe(folder))
    print("\n  ".join([folder, *lines]))
    started = time.monotonic()
    count = loading.check(folder)
    print(f"  loaded, and {count} warm-up requests answered, in {time.monotonic() - started:.1f} s")


def main(words: Sequence[str]) -> int:
    """Runs the script on the folders named on the command line."""

    def show_all():
        if len(words) < 2:
            raise InputError("name the folder of a version: check_saved_model models/reviews/1")
        for folder in words[1:]:
            check(folder.rstrip("/"))

    return exit_code(show_all)


def run() -> None:
    """Runs the script with the process's arguments."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    app.run(main, flags_parser=functools.partial(parse_flags, doc=__doc__))


if __name__ == "__main__":
    run()
