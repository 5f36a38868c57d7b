"""Parses a script's flags. `--help` exits with code 0, and an invalid flag is reported as a one-line error."""

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from absl import flags

import bert_tf
from bert_tf.core import help_text
from bert_tf.core.errors import InputError

_SHORT_HELP, _FULL_HELP = frozenset({"help", "helpshort", "h"}), frozenset({"helpfull", "helpful"})
# Matches absl's messages about an invalid value. These messages quote the errors of Python's own functions.
_WRONG_VALUE = re.compile(
    r"flag --(\w+)=(.*?): \W*(?:invalid literal|could not convert|value should be|Non-boolean|.* is not an? ).*",
    re.DOTALL,
)


def items(text: str) -> tuple[str, ...]:
    """Returns the non-empty parts of a comma-separated value."""
    return tuple(part for part in map(str.strip, text.split(",")) if part)


def absolute_paths(text: str) -> str:
    """Makes comma-separated paths absolute, for processes with another working directory."""
    return ",".join(part if "://" in part else os.path.abspath(part) for part in items(text))


def parse_flags(
    words: Sequence[str], doc: str, groups: Mapping[str, Sequence[help_text.FlagHelp]] | None = None
) -> list[str]:
    """Parses the flags of the process; serves as the `flags_parser` of `absl.app.run`.

    absl's own parser exits with code 1 after `--help`, and prints several lines for an invalid flag.

    Args:
      words: the command line; the program's name comes first.
      doc: description of the script, for `--help`.
      groups: maps the titles of groups to the script's flags; the default is one group, with the flags that the
        script's module defines.

    Returns:
      The positional arguments; the program's name comes first.

    Raises:
      SystemExit: help or the version was requested and has been printed (exit code 0), or a flag is invalid (exit
        code 1).
    """
    groups = help_text.of_module(flags.FLAGS, words[0]) if groups is None else groups
    try:
        given = _given(words[1:], flags.FLAGS)
        asked = {name for name, *_ in given}
        if "version" in asked:
            print_help(f"bert_tf {bert_tf.__version__}")
            sys.exit(0)
        if asked & (_SHORT_HELP | _FULL_HELP):
            print_help(help_text.text(doc, groups, is_full=bool(asked & _FULL_HELP)))
            sys.exit(0)
        for warning in _doubtful(given, groups):
            print(f"warning: {warning}", file=sys.stderr)
        return parse_values(flags.FLAGS, words)
    except InputError as error:
        print(f"error: {error} (--help lists the flags)", file=sys.stderr)
        sys.exit(1)
    except SystemExit:  # absl prints --helpxml while it parses
        flush_output()
        sys.exit(0)
    except BrokenPipeError:
        discard_output()
        sys.exit(0)


def parse_values(flag_values: flags.FlagValues, words: Sequence[str]) -> list[str]:
    """Parses words into the values of flags; returns the program's name and the positional arguments.

    Raises:
      InputError: a flag is unknown, its value is missing or invalid, or a flag file cannot be read.
    """
    _given(words[1:], flag_values)  # refuses a flag that would take the next flag as its value
    try:
        return flag_values(words)
    except flags.UnrecognizedFlagError as error:
        raise InputError(f"--{error.flagname}: no such flag{_suggestions(error.flagname, flag_values)}") from error
    except (flags.Error, ValueError) as error:
        raise InputError(_in_words(str(error), flag_values)) from error


def _suggestions(name: str, flag_values: flags.FlagValues) -> str:
    name = name.replace("-", "_")
    alike = difflib.get_close_matches(name, flag_values, n=3, cutoff=0.7)
    alike += [flag for flag in flag_values if name in flag.split("_") and flag not in alike]
    return f"; did you mean {' or '.join(f'--{flag}' for flag in alike[:3])}?" if alike else ""


def _in_words(message: str, flag_values: flags.FlagValues) -> str:
    """Rewrites a message of absl as one line; known messages also get a clearer wording."""
    if found := _WRONG_VALUE.fullmatch(message):
        name, value = found.groups()
        parser = flag_values[name].parser
        if choices := [choice for choice in getattr(parser, "enum_values", ()) if choice]:
            return f"--{name}={value}: must be one of {', '.join(choices)}"
        return f"--{name}={value}: must be {'true or false' if flag_values[name].boolean else parser.syntactic_help}"
    if found := re.match(r"ERROR:: Unable to open flagfile: (.*)", message):
        return f"--flagfile cannot be read: {found[1]}"
    return " ".join(message.split())


def _given(words: Sequence[str], flag_values: flags.FlagValues) -> list[tuple[str, str | None, bool]]:
    """Returns (name, value, whether a flag file gave the flag) for each flag, in the order in which absl reads them."""
    given, rest = [], iter(words)
    for word in rest:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            continue
        flag = flag_values[name] if name in flag_values else None  # noqa: SIM401
        if flag is None and name.startswith("no") and name[2:] in flag_values:
            name, value = name[2:], "false"
        elif not equals and (name == "flagfile" or flag is not None):
            value = "true" if flag is not None and flag.boolean else _next_value(word, rest, flag_values)
        name = flag.name if flag is not None else name  # "?" is short for "help"
        if name == "flagfile":
            given += [(*entry[:2], True) for entry in _given(_words_of_file(value, flag_values), flag_values)]
        else:
            given.append((name, value, False))
    return given


def _next_value(flag: str, rest: Iterator[str], flag_values: flags.FlagValues) -> str:
    value = next(rest, "--")
    if value.startswith("--") and value.lstrip("-").partition("=")[0] in ("", *flag_values):  # "" if no word follows
        raise InputError(f"{flag} has no value; write {flag}=VALUE")
    return value


def _words_of_file(path: str, flag_values: flags.FlagValues) -> list[str]:
    try:
        return flag_values.read_flags_from_files([f"--flagfile={path}"], force_gnu=False)
    except flags.Error as error:
        raise InputError(_in_words(str(error), flag_values)) from error


def _doubtful(
    given: Sequence[tuple[str, str | None, bool]], groups: Mapping[str, Sequence[help_text.FlagHelp]]
) -> list[str]:
    """Returns warnings about flags that are given twice with different values.

    A flag that overrides the value in a flag file gives no warning, and neither does a flag that may be repeated.
    """
    warnings, seen = [], {}
    names = {flag.alias: flag.name for members in groups.values() for flag in members}
    for word, value, is_from_file in given:
        name = names.get(word, word)
        is_repeated = name in flags.FLAGS and isinstance(flags.FLAGS[name], flags.MultiFlag)
        if name in seen and seen[name] != value and not is_repeated:
            warnings.append(f"--{name}={seen[name]} and --{name}={value} are given; the last value counts")
        if not is_from_file:
            seen[name] = value
    return warnings


def print_help(text: str) -> None:
    """Prints a help text; ignores a closed pipe, such as after `| head`."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard_output()


def flush_output() -> None:
    """Flushes standard output; ignores a closed pipe, such as after `| head`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Redirects standard output to the null device, so that Python's flush at exit does not fail on a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code(show: Callable[[], None]) -> int:
    """Runs a function that prints, and returns 0. If the input is invalid, prints a one-line error and returns 1."""
    try:
        show()
        flush_output()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        discard_output()
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def is_utf8(name: str) -> bool:
    """Returns whether a name from the file system or the command line is valid UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
