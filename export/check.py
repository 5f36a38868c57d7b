"""Checks an export: loads it with only tensorflow and tensorflow_text, and replays its warm-up requests.

check_saved_model models/reviews/1

The script prints the signatures with their inputs, outputs and methods. If the export is broken, the script prints one
line that states the cause, and exits with code 1.
"""

import time
from collections.abc import Sequence

from bert_tf.core.flag_parsing import run_on_words


def check(folder: str) -> None:
    """Prints the signatures of an export, loads it, and replays its warm-up requests."""
    from export import loading

    lines = list(loading.describe(folder))
    print("\n  ".join([folder, *lines]))
    started = time.monotonic()
    count = loading.check(folder)
    print(f"  the model was loaded and answered {count} warm-up requests in {time.monotonic() - started:.1f} s")


def main(folders: Sequence[str]) -> None:
    for folder in folders:
        check(folder.rstrip("/"))


def run() -> None:
    """Runs the script with the process's arguments."""
    run_on_words(main, __doc__, "name the folder of a version: check_saved_model models/reviews/1")


if __name__ == "__main__":
    run()
