"""Writes the text of `--help`, which lists the most important flags, and of `--helpfull`, which lists all flags."""

import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags

# The titles of all groups, in the order in which the help shows them.
GROUPS = (
    "Data", "Input", "Examples", "Masking", "Vocabulary", "Extending a vocabulary", "Model", "Models", "Vectors",
    "Output", "Questions", "Embeddings and masks", "Run", "Training", "Evaluation", "Distillation", "Sweep",
    "Addresses", "Batching and threads", "Limits", "Monitoring", "Devices", "Flags",
)  # fmt: skip
# A script with at most this many flags lists all of them in --help.
_FEW = 15
# Width of the column of flag names; a longer name gets its own line.
_NAMES = 26
_NARROWEST, _WIDEST = 50, 100
_COMMAND = re.compile(r"\w+ --")


class FlagHelp(NamedTuple):
    """The help entry of a flag."""

    name: str  # the flag's name without dashes
    help: str
    default: Any = None  # the value of a flag that is not given; None or "" if the help text describes this case
    choices: Sequence[str] = ()  # allowed values; empty if any value is allowed
    alias: str = ""  # a second name; empty if there is none
    is_boolean: bool = False  # whether the flag is written as `--name` and `--noname`
    is_required: bool = False  # whether the flag must be given
    is_first: bool = True  # whether `--help` lists the flag; if false, only `--helpfull` does
    bounds: str = ""  # limits of a number, in words; empty if there are none
    # the value for a new run of a flag whose default is the value of the run in --output_dir; None if absent
    new_run: Any = None


def of_module(flag_values: flags.FlagValues, module_name: str) -> dict[str, list[FlagHelp]]:
    """Returns one group with the flags that a module defines directly with absl."""
    own = flag_values.get_flags_for_module(module_name)
    described = [FlagHelp(flag.name, flag.help, flag.default, is_boolean=flag.boolean) for flag in own]
    return {"Flags": described} if described else {}


def text(doc: str, groups: Mapping[str, Sequence[FlagHelp]], is_full: bool, columns: int | None = None) -> str:
    """Writes the help of a script.
    `doc`: description of the script, and an example command.
    `groups`: maps the titles of groups to the script's flags.
    `is_full`: whether to list all flags, not only the most important flags.
    `columns`: width of the text; by default the terminal's width, within limits."""
    is_full = is_full or sum(map(len, groups.values())) <= _FEW
    width = min(max(columns or shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
    parts = [_wrapped(paragraph, width) for paragraph in doc.strip().split("\n\n")]
    for title, members in groups.items():
        shown = [_entry(flag, width) for flag in members if is_full or flag.is_first]
        if shown:
            parts.append("\n".join([f"{title}:", *shown]))
    if groups:
        parts.append("\n".join(textwrap.wrap(_last_line(groups, is_full), width)))
    return "\n\n".join(parts)


def _wrapped(paragraph: str, width: int) -> str:
    """Wraps a paragraph of the docstring; a command's lines end in backslashes, so that a shell accepts the command."""
    if not _COMMAND.match(paragraph):
        return "\n".join(textwrap.wrap(paragraph, width))
    words = " ".join(paragraph.replace("\\\n", " ").split())
    options = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": " " * 6}
    return " \\\n".join(textwrap.wrap(words, width - 2, **options))


def _last_line(groups: Mapping[str, Sequence[FlagHelp]], is_full: bool) -> str:
    line = "--flagfile=FILE reads flags from a file, one per line."
    hidden = {title: sum(not flag.is_first for flag in members) for title, members in groups.items()}
    if is_full or not any(hidden.values()):
        return line
    titles = ", ".join(title[0].lower() + title[1:] for title, count in hidden.items() if count)
    return f"{line} --helpfull shows {sum(hidden.values())} more flags: {titles}."


def _entry(flag: FlagHelp, width: int) -> str:
    can_be_negated = flag.is_boolean and flag.default is not False
    name = f"  --{'[no]' if can_be_negated else ''}{flag.name}"
    lines = textwrap.wrap(f"{flag.help}{_remarks(flag)}", width - _NAMES, break_on_hyphens=False)
    if len(name) < _NAMES - 1:
        lines[0] = f"{name:{_NAMES}}{lines[0]}"
    else:
        lines.insert(0, name)
    return "\n".join([lines[0], *(" " * _NAMES + line for line in lines[1:])])


def _remarks(flag: FlagHelp) -> str:
    """Returns the remarks that follow a help text: "required", the choices, the default and the second name."""
    remarks = []
    if flag.is_required:
        remarks.append("required")
    if not all(f"{choice}:" in flag.help for choice in flag.choices):
        remarks.append(f"one of {', '.join(filter(None, flag.choices))}")
    if flag.default not in (None, "", False) or (flag.default is not None and type(flag.default) in (int, float)):
        remarks.append(f"default: {value_text(flag.default)}")
    if flag.new_run is not None:
        value = "none" if flag.new_run == "" else value_text(flag.new_run)
        remarks.append(f"default: from the run in --output_dir, else {value}")
    if flag.alias:
        remarks.append(f"also --{flag.alias}")
    return f" ({'; '.join(remarks)})" if remarks else ""


def value_text(value) -> str:
    """Returns a flag's default value as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
