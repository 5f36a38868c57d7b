"""Parses a script's flags. `--help` exits with code 0, and an invalid flag is reported as a one-line error."""

import difflib
import functools
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from absl import app, flags

from bert_tf.core import help_text
from bert_tf.core.errors import InputError, unreadable

_SHORT_HELP, _FULL_HELP = frozenset({"help", "helpshort", "h", "?"}), frozenset({"helpfull", "helpful"})
_FLAG_FILE = re.compile("--?flagfile=")


def items(text: str) -> tuple[str, ...]:
    """Returns the non-empty parts of a comma-separated value."""
    return tuple(part for part in map(str.strip, text.split(",")) if part)


def absolute_paths(text: str) -> str:
    """Makes comma-separated paths absolute, for processes with another working directory."""
    return ",".join(part if "://" in part else os.path.abspath(part) for part in items(text))


def parse_flags(
    words: Sequence[str], doc: str, groups: Mapping[str, Sequence[help_text.FlagHelp]] | None = None
) -> list[str]:
    """Parses the flags of the process; serves as the `flags_parser` of `absl.app.run`. absl's own parser exits with
    code 1 after `--help`, and prints several lines for an invalid flag.
    `words`: the command line; the program's name comes first.
    `doc`: description of the script, for `--help`.
    `groups`: maps the titles of groups to the script's flags; the default is one group, with the flags that the
      script's module defines.
    Returns the positional arguments; the program's name comes first.
    Raises SystemExit: help or the version was requested and has been printed (exit code 0), or a flag is invalid (exit
    code 1)."""
    groups = help_text.of_module(flags.FLAGS, words[0]) if groups is None else groups
    asked = {word.lstrip("-") for word in words[1:] if word.startswith("-")}
    if "version" in asked:
        import importlib.metadata  # takes time that other starts do not need

        print_help(f"bert_tf {importlib.metadata.version('bert_tf')}")
        sys.exit(0)
    if asked & (_SHORT_HELP | _FULL_HELP):
        print_help(help_text.text(doc, groups, is_full=bool(asked & _FULL_HELP)))
        sys.exit(0)
    try:
        return parse_values(flags.FLAGS, words)
    except InputError as error:
        print(f"error: {error} (--help lists the flags)", file=sys.stderr)
        sys.exit(1)


def parse_values(flag_values: flags.FlagValues, words: Sequence[str]) -> list[str]:
    """Parses words into the values of flags; returns the program's name and the positional arguments."""
    for path in (word.partition("=")[2] for word in words if _FLAG_FILE.match(word)):
        if os.path.exists(path):
            with unreadable(path, "is not a file of flags", "save it as UTF-8"), open(path, encoding="utf-8") as file:
                file.read()
    try:
        return flag_values(words)
    except flags.UnrecognizedFlagError as error:
        raise InputError(f"--{error.flagname}: no such flag{_suggestions(error.flagname, flag_values)}") from error
    except (flags.Error, ValueError) as error:
        raise InputError(" ".join(str(error).split())) from error


def _suggestions(name: str, flag_values: flags.FlagValues) -> str:
    name = name.replace("-", "_")
    alike = difflib.get_close_matches(name, flag_values, n=3, cutoff=0.7)
    alike += [flag for flag in flag_values if name in flag.split("_") and flag not in alike]
    return f"; did you mean {' or '.join(f'--{flag}' for flag in alike[:3])}?" if alike else ""


def print_help(text: str) -> None:
    """Prints a help text; ignores a closed pipe, such as after `| head`."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Redirects standard output to the null device, so that Python's flush at exit does not fail on a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code(show: Callable[[], None]) -> int:
    """Runs a function that prints, and returns 0. If the input is invalid, prints a one-line error and returns 1."""
    try:
        show()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        discard_output()
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def run_on_words(show: Callable[[list[str]], None], doc: str, missing: str) -> None:
    """Runs a script whose command line names files or folders; its flags must be defined.
    `show`: function that prints the results for the words of the command line.
    `doc`: description of the script, for `--help`.
    `missing`: message for a command line without words."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3 takes a second to import

    def main(words: Sequence[str]) -> int:
        def show_all():
            if len(words) < 2:
                raise InputError(missing)
            show(list(words[1:]))

        return exit_code(show_all)

    app.run(main, flags_parser=functools.partial(parse_flags, doc=doc))


def is_utf8(name: str) -> bool:
    """Returns whether a name from the file system or the command line is valid UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
