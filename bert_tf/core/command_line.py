"""Converts settings dataclasses to absl flags and back, and runs scripts so that errors are printed as one line.

The settings of a script are one flat frozen dataclass whose fields are the script's flags. Therefore the name, type,
default and help text of a flag are defined in one place, and the library never reads flags directly.
"""

import contextlib
import dataclasses
import difflib
import functools
import gc
import inspect
import json
import math
import numbers
import operator
import os
import re
import signal
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app, flags

from bert_tf.core import help_text, log_lines
from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import is_utf8, parse_flags, parse_values

_NUMBERS = {
    bool: (bool, "true or false"),
    int: (numbers.Integral, "an integer"),
    float: (numbers.Real, "a number"),
}
_BOUNDS = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}
_DEFINERS = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}

_DEBUG = help_text.FlagHelp("debug", "show full tracebacks and TensorFlow's own log", False, is_boolean=True)

# Matches a `~` that means the home directory, at the start of a path in a comma-separated list, or after `NAME=`.
_HOME = re.compile(r"(^|[,=]\s*)~(?=/|,|$)")


class Terminated(BaseException):
    """Raised on SIGTERM, so that a script cleans up as it does after Ctrl-C."""


def _terminate(number, frame) -> None:
    raise Terminated


def setting(
    help: str,
    default=dataclasses.MISSING,
    choices: Sequence[str] = (),
    alias: str = "",
    group: str = "",
    first: bool = False,
    new_run: Any = None,
    is_repeated: bool = False,
    per_worker: bool = False,
    only_with: str = "",
    not_with: Sequence[str] = (),
    **bounds: float,
):
    """Returns a dataclass field that is also a flag.
    `default`: default value; a flag without a default is required.
    `choices`: allowed values of an enum flag; empty if any value is allowed.
    `alias`: a second name of the flag; empty if there is none.
    `group`: title under which the help lists the flag; if empty, the class's `flag_group` is the title.
    `first`: whether `--help` lists the flag; if false, only `--helpfull` does. `--help` always lists required flags.
    `new_run`: value of a flag that is not given, if there is no run in `output_dir`. Otherwise, the value is the run's.
      None if the flag is not of this kind, or has no value for a new run.
    `is_repeated`: whether the flag may be given several times; commas join the values.
    `per_worker`: whether workers on several machines may give different values, such as paths. The files behind the
      paths are compared instead.
    `only_with`: flags without which this flag has no effect, such as "do_train and do_eval" or "runner=spark". Its help
      begins with them.
    `not_with`: flags that contradict this flag, such as "frozen_layers=-1".
    `**bounds`: limits of a number; the names are the keys of `_BOUNDS`."""
    metadata = locals() | {"choices": tuple(choices)}
    if only_with:
        metadata["help"] = f"with {_with_dashes(only_with)}: {help}"
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


def _with_dashes(condition: str) -> str:
    return re.sub(r"\b(?!or\b|and\b)\S+", r"--\g<0>", condition)


def flag_groups(settings_class: type) -> dict[str, list[help_text.FlagHelp]]:
    """Returns the help entries of a settings class's flags, grouped by title. Required flags come first, and
    the flags of a class come before the flags of its base classes."""
    types = typing.get_type_hints(settings_class)
    fields = {field.name: field for field in dataclasses.fields(settings_class)}
    groups: dict[str, list[help_text.FlagHelp]] = {}
    for owner in settings_class.__mro__:
        for name in inspect.get_annotations(owner):
            if field := fields.pop(name, None):
                title = field.metadata["group"] or getattr(owner, "flag_group", "Flags")
                groups.setdefault(title, []).append(_flag_help(field, is_boolean=_plain(types[name]) is bool))
    titles = sorted(groups, key=help_text.GROUPS.index)
    # A run trains before it evaluates and predicts.
    return {
        title: sorted(groups[title], key=lambda flag: (not flag.is_required, flag.name != "do_train"))
        for title in titles
    }


def _flag_help(field: dataclasses.Field, is_boolean: bool) -> help_text.FlagHelp:
    is_required = field.default is dataclasses.MISSING
    shown = {name: field.metadata[name] for name in ("help", "choices", "alias", "new_run")}
    return help_text.FlagHelp(
        field.name, **shown, default=None if is_required else field.default, is_boolean=is_boolean,
        is_required=is_required, is_first=field.metadata["first"] or is_required,
        bounds=_bounds(field.metadata["bounds"]),
    )  # fmt: skip


def _bounds(bounds: Mapping[str, float]) -> str:
    """Returns the bounds of a number in words, such as "above 0 and at most 1"."""
    return " and ".join(f"{name.replace('_', ' ')} {bound}" for name, bound in bounds.items())


def define_flags(settings_class: type, flag_values: flags.FlagValues, module_name: str) -> None:
    """Defines one flag for every field of a settings class.
    `settings_class`: dataclass whose fields come from `setting`.
    `module_name`: the module whose `--help` lists the flags."""
    types = typing.get_type_hints(settings_class)
    for field in dataclasses.fields(settings_class):
        default = None if field.default is dataclasses.MISSING else field.default
        options = {"flag_values": flag_values, "module_name": module_name}
        choices = field.metadata["choices"]
        if choices:
            flags.DEFINE_enum(field.name, default, choices, field.metadata["help"], **options)
        elif field.metadata["is_repeated"]:
            flags.DEFINE_multi_string(field.name, default or None, field.metadata["help"], **options)
        else:
            _DEFINERS[_plain(types[field.name])](field.name, default, field.metadata["help"], **options)
        if alias := field.metadata["alias"]:
            flags.DEFINE_alias(alias, field.name, flag_values, module_name)


def _plain(annotation) -> type:
    """Returns a flag's type without None: `int` for `int | None`."""
    return next((kind for kind in typing.get_args(annotation) if kind is not type(None)), annotation)


def settings_from_flags(settings_class: type, flag_values: flags.FlagValues):
    """Returns settings from parsed flags; expands `~/`, because shells do not expand `~/` after `--flag=`."""
    values = {}
    fields = dataclasses.fields(settings_class)
    missing = [f for f in fields if f.default is dataclasses.MISSING and flag_values[f.name].value is None]
    described = [f"--{field.name} ({re.split('[;:]', field.metadata['help'])[0]})" for field in missing]
    require(not missing, f"give {', '.join(described)} (--help lists the flags)")
    for field in fields:
        value = flag_values[field.name].value
        if field.metadata["is_repeated"]:
            value = ",".join(value or [])
        if isinstance(value, str):
            require(
                field.default is not dataclasses.MISSING or bool(value.strip()),
                f"--{field.name} is empty; give a value",
            )
            # Python represents bytes that are not UTF-8 as lone surrogates, which TensorFlow does not accept.
            require(is_utf8(value), f"--{field.name}={value!a}: is not UTF-8; rename the file")
            value = _HOME.sub(lambda match: match[1] + os.path.expanduser("~"), value)
        values[field.name] = value
    return settings_class(**values)


def parse(settings_class: type, arguments: Sequence[str]):
    """Returns settings from command-line arguments; does not read or change the flags of the process.
    `settings_class`: dataclass whose fields come from `setting`.
    `arguments`: arguments as passed by a shell, without the program's name."""
    flag_values = flags.FlagValues()
    define_flags(settings_class, flag_values, settings_class.__module__)
    _refuse_words(parse_values(flag_values, ["program", *arguments])[1:])
    return settings_from_flags(settings_class, flag_values)


def _refuse_words(words: Sequence[str]) -> None:
    # absl would read "--do_train False" as --do_train=true and a positional argument.
    if words:
        raise InputError(f"unexpected argument {words[0]!r}; write flags as --name=value")


def of_keywords(settings_class: type, values: Mapping[str, Any]):
    """Makes settings from the keyword arguments of a Python call; None means the default. An unknown name is an
    InputError with suggestions."""
    names = [field.name for field in dataclasses.fields(settings_class)]
    for name in values:
        if name not in names:
            longer = [known for known in names if known.endswith(f"_{name}")]
            alike = " or ".join(longer[:3] or difflib.get_close_matches(name, names, n=3))
            raise InputError(f"{name}: no such argument" + (f"; did you mean {alike}?" if alike else ""))
    return settings_class(**{name: value for name, value in values.items() if value is not None})


def require(condition: bool, message: str) -> None:
    """Raises InputError with the message unless the condition is true."""
    if not condition:
        raise InputError(message)


def check_values(settings) -> None:
    """Raises InputError if a value has the wrong type, is out of bounds or not finite, or is not one of the choices.
    Numbers of NumPy become numbers of Python. Paths, lists, numbers and dicts become the texts of flags. Last, it calls
    `check_together`."""
    types = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value, kind = getattr(settings, field.name), _plain(types[field.name])
        if value is None or value is field.default:
            continue
        if kind is str:
            value = _as_text(field.name, value)
            object.__setattr__(settings, field.name, value)
        choices = field.metadata["choices"]
        require(not choices or value in choices, f"--{field.name}={value!r}: must be one of {', '.join(choices)}")
        if kind in _NUMBERS:
            accepted, what = _NUMBERS[kind]
            right = isinstance(value, accepted) and isinstance(value, bool) == (kind is bool)
            require(right, f"--{field.name}={value!r}: must be {what}")
            require(math.isfinite(value), f"--{field.name}={value}: must be finite")
            object.__setattr__(settings, field.name, kind(value))  # JSON cannot store NumPy's numbers
        if bounds := field.metadata["bounds"]:
            right = all(_BOUNDS[name](value, bound) for name, bound in bounds.items())
            require(right, f"--{field.name}={value}: must be {_bounds(bounds)}")
    check_together(settings)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base class of the settings of all scripts; checks the values of the flags."""

    def __post_init__(self):
        check_values(self)


def check_together(settings) -> None:
    """Raises InputError if a flag lacks the flags of its `only_with`, or contradicts one of its `not_with`. A flag that
    is None has no value yet, so the flags that need one of its values are accepted."""
    fields = {field.name: field for field in dataclasses.fields(settings)}

    def is_given(flag: str, if_open: bool = False) -> bool:
        name, _, wanted = flag.partition("=")
        value = getattr(settings, name)
        if wanted:
            return str(value) == wanted or (if_open and value is None)
        return value is not False and value not in ("", None, fields[name].default, fields[name].metadata["new_run"])

    for name in filter(is_given, fields):
        needed = fields[name].metadata["only_with"]
        ways = [part.split(" and ") for part in needed.split(" or ") if part]
        has_all = not ways or any(all(is_given(flag, True) for flag in way) for way in ways)
        flags = _with_dashes(needed)
        require(has_all, f"--{name} needs {flags}; add {flags}, or drop --{name}")
        for flag in filter(is_given, fields[name].metadata["not_with"]):
            raise InputError(f"--{name} contradicts --{flag}; drop one of them")


def without(settings_class: type, *names: str) -> dict[str, Any]:
    """Returns the defaults of flags, and of all flags that have no effect without these flags."""
    fields, off = dataclasses.fields(settings_class), set(names)
    while added := {f.name for f in fields if off & set(re.split("[ =]", f.metadata["only_with"]))} - off:
        off |= added
    return {field.name: field.default for field in fields if field.name in off}


def _as_text(name: str, value: Any) -> str:
    """Returns the text of a flag for a value that Python code gives; commas join a list."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return ",".join(_as_text(name, item) for item in value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, Mapping):
        return json.dumps({str(key): item for key, item in value.items()}, default=str)
    raise InputError(f"--{name}={value!r:.60}: must be a string, a path, a number, or a list of these")


def require_folder(flag: str, path: str) -> None:
    """Raises InputError for a path in which TensorFlow cannot store checkpoints or SavedModels. TensorFlow reads such a
    path as a pattern. It would write files there, and then fail to find these files."""
    require(bool(path), f"--{flag} is empty; name a folder")
    special = sorted(set(path) & set("*?[\\"))
    require(
        not special,
        f"--{flag}={path}: TensorFlow cannot read files below a path with {' '.join(special)}; name another folder",
    )


@contextlib.contextmanager
def hidden_modules(*names: str):
    """Makes modules look as if they were not installed, except for modules that are already imported."""
    names = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def script_of(settings_class: type, main: Callable, doc: str) -> Callable[[], None]:
    """Returns the function that runs a script; see `run`."""
    return functools.partial(run, settings_class, main, doc)


def run(settings_class: type, main: Callable, doc: str) -> None:
    """Runs a script: parses its flags and calls `main(settings)`. Invalid input is reported as a one-line error with
    exit code 1.
    `main`: function that is called with the resolved settings; it imports heavy modules itself, so that `--help` is
      fast.
    `doc`: the text that `--help` prints above the flags."""
    # Modules and graphs consist of millions of objects that live until the process ends. A search for garbage among
    # these objects would take a second or more.
    gc.set_threshold(100_000, 20, 20)
    # Without this variable, `tf.keras` would be Keras 3, which imports libraries for plotting and statistics. This
    # project does not use `tf.keras`.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    define_flags(settings_class, flags.FLAGS, sys.argv[0])
    flags.DEFINE_boolean("debug", False, _DEBUG.help, flags.FLAGS, module_name=sys.argv[0])
    groups = {**flag_groups(settings_class), "Errors": [_DEBUG]}

    def run_and_exit(words: Sequence[str]) -> None:
        code = _main_with_clear_errors(settings_class, main, words[1:])
        gc.freeze()  # otherwise the interpreter would search all objects once more before it exits
        sys.exit(code)

    app.run(run_and_exit, flags_parser=functools.partial(parse_flags, doc=doc, groups=groups))


def _main_with_clear_errors(settings_class: type, main: Callable, words: Sequence[str]) -> int:
    debug = flags.FLAGS["debug"].value
    log_lines.set_up(debug)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        _refuse_words(words)
        main(settings_from_flags(settings_class, flags.FLAGS))
    except (InputError, OSError) as error:
        if debug:
            raise
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Terminated) as stop:
        print("stopped; run the same command again to continue", file=sys.stderr)
        return 143 if isinstance(stop, Terminated) else 130
    except Exception as error:
        if debug or not _comes_from_the_machine(error):
            raise
        print(f"error: {_one_line(error)} (--debug shows the full traceback)", file=sys.stderr)
        return 1
    return 0


def _comes_from_the_machine(error: Exception) -> bool:
    """Returns whether a TensorFlow error comes from disk, network, memory or data, and not from a bug."""
    import tensorflow as tf

    bugs = tf.errors.InvalidArgumentError, tf.errors.InternalError
    return isinstance(error, tf.errors.OpError) and not isinstance(error, bugs)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
