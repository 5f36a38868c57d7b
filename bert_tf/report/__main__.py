r"""Writes a run's report.html again, from the files in its folder.

python -m bert_tf.report pretrained

FOLDER is the --output_dir of run_pretraining or run_classifier; several may be given.
"""

import os
import sys

from tfrecords.errors import InputError
from tfrecords.flag_parsing import print_help


def main(words: list[str]) -> int:
    """Writes the report of each folder on the command line; returns the exit code."""
    if not words or words[0] in ("-h", "--help"):
        print_help(__doc__)
        return 0 if words else 1
    if words[0].startswith("-"):
        print(f"error: unknown flag {words[0]!r}; give folders of runs (--help shows how)", file=sys.stderr)
        return 1
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3 takes a second to import
    from bert_tf.report import run_report

    try:
        for folder in words:
            print(run_report.write_or_refuse(folder))
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
