"""Checks an export: loads it with only tensorflow and tensorflow_text, and replays its warm-up requests.

check_saved_model models/reviews/1

The script prints the signatures with their inputs, outputs and methods. If the export is broken, the script prints one
line that states the cause, and exits with code 1.
"""

import functools
import os
import pathlib
import sys
import time
from collections.abc import Sequence

if not __package__:  # run by path: the packages are in the parent folder
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from absl import app

from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import exit_code, parse_flags


def check(folder: str) -> None:
    """Prints the signatures of an export, loads it, and replays its warm-up requests.

    Raises:
      InputError: the export is broken; the message states the cause.
    """
    from export import loading

    lines = list(loading.describe(folder))
    print("\n  ".join([folder, *lines]))
    started = time.monotonic()
    count = loading.check(folder)
    print(f"  the model was loaded and answered {count} warm-up requests in {time.monotonic() - started:.1f} s")


def main(words: Sequence[str]) -> int:
    """Runs the script on the folders that the command line names."""

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
