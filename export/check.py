"""Checks an export: loads it with only tensorflow and tensorflow_text, and replays its warm-up requests.

check_saved_model models/reviews/1

The script prints the signatures with their inputs, outputs and methods, the size, and how fast the model answers on
this machine. If the export is broken, the script prints one line that states the cause, and exits with code 1.
"""

import time
from collections.abc import Sequence

from bert_tf.core.flag_parsing import run_on_words


def check(folder: str) -> None:
    """Prints the signatures of an export, loads it, replays its warm-up requests, and prints its size and speed."""
    import tensorflow as tf

    from export import loading

    print("\n  ".join([folder, *loading.describe(folder)]))
    started = time.monotonic()
    model, count = loading.check(folder)
    print(f"  the model was loaded and answered {count} warm-up requests in {time.monotonic() - started:.1f} s")
    files = (f"{place}/{name}" for place, _, names in tf.io.gfile.walk(folder) for name in names)
    print(f"  size: {sum(tf.io.gfile.stat(file).length for file in files) / 1e6:.1f} MB")
    latencies = {rows: loading.latency(model, folder, rows) for rows in (1, 32)}
    if None not in latencies.values():
        times = (f"{1000 * seconds:.1f} ms for {rows}" for rows, seconds in latencies.items())
        print(f"  latency on this machine: {' and '.join(times)} inputs at a time (median)")


def main(folders: Sequence[str]) -> None:
    for folder in folders:
        check(folder.rstrip("/"))


def run() -> None:
    """Runs the script with the process's arguments."""
    run_on_words(main, __doc__, "name the folder of a version: check_saved_model models/reviews/1")


if __name__ == "__main__":
    run()
