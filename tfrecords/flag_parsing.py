"""How a script reads its flags: help ends with exit code 0, a wrong flag in one line."""

import os
import sys
from collections.abc import Sequence

from absl import flags


def parse_flags(words: Sequence[str]) -> list[str]:
    """Reads the flags of the process; for `absl.app.run(main, flags_parser=parse_flags)`.

    absl's own parser ends `--help` with exit code 1, and a wrong flag with several lines.

    Args:
      words: the command line, the program's name first.

    Returns:
      The words that are no flags, the program's name first.

    Raises:
      SystemExit: help was asked for and is printed (exit code 0), or a flag is wrong (1).
    """
    try:
        return flags.FLAGS(words)
    except flags.Error as error:
        print(f"error: {' '.join(str(error).split())} (--help lists the flags)", file=sys.stderr)
        sys.exit(1)
    except SystemExit:  # absl prints the help while it parses, and nothing else ends the process there
        flush_output()
        sys.exit(0)
    except BrokenPipeError:
        discard_output()
        sys.exit(0)


def flush_output() -> None:
    """Writes out what was printed; quietly where nobody reads it any more, as behind `| head`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Makes standard output lead nowhere, so that Python's own flush at exit finds no broken pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
