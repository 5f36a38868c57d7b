"""Parses a script's flags: `--help` exits with code 0, an invalid flag gives a one-line error."""

import os
import sys
from collections.abc import Callable, Sequence

from absl import flags

from tfrecords.errors import InputError


def parse_flags(words: Sequence[str]) -> list[str]:
    """Parses the flags of the process, for `absl.app.run(main, flags_parser=parse_flags)`.

    absl's own parser exits with code 1 after `--help` and prints several lines for an invalid flag.

    Args:
      words: the command line, starting with the program's name.

    Returns:
      The positional arguments, starting with the program's name.

    Raises:
      SystemExit: help was requested and printed (exit code 0), or a flag is invalid (exit code 1).
    """
    try:
        return flags.FLAGS(words)
    except flags.Error as error:
        print(f"error: {' '.join(str(error).split())} (--help lists the flags)", file=sys.stderr)
        sys.exit(1)
    except SystemExit:  # absl prints the help while it parses; nothing else exits here
        flush_output()
        sys.exit(0)
    except BrokenPipeError:
        discard_output()
        sys.exit(0)


def print_help(text: str) -> None:
    """Prints a help text and ignores a closed pipe, as after `| head`."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard_output()


def flush_output() -> None:
    """Flushes standard output and ignores a closed pipe, as after `| head`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Redirects standard output to the null device, so that Python's flush at exit does not fail on a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code(show: Callable[[], None]) -> int:
    """Runs a function that prints; returns 1 after one line of error if its input is wrong, else 0."""
    try:
        show()
        flush_output()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        discard_output()
    return 0


def is_utf8(name: str) -> bool:
    """Returns whether a name from the file system or the command line has no bytes outside UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
