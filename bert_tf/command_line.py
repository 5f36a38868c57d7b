"""Converts between settings dataclasses and absl flags, and runs scripts with one-line errors.

The settings of a script are one flat frozen dataclass whose fields are the script's flags. The name, type, default
and help of a flag are therefore defined in one place, and the library never uses flags directly.
"""

import contextlib
import dataclasses
import errno
import gc
import json
import logging as python_logging
import math
import numbers
import os
import re
import signal
import sys
import typing
from collections.abc import Callable, Sequence

from absl import app, flags
from absl import logging as absl_logging

from tfrecords.errors import InputError
from tfrecords.flag_parsing import is_utf8, parse_flags

_NUMBERS = {
    bool: (bool, "true or false"),
    int: (numbers.Integral, "an integer"),
    float: (numbers.Real, "a number"),
}
_DEFINERS = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}

# At the start of each path of a comma-separated list.
_HOME = re.compile(r"(^|,\s*)~(?=/|,|$)")


class Terminated(BaseException):
    """Raised on SIGTERM, so that a script cleans up as after Ctrl-C."""


def _terminate(number, frame) -> None:
    raise Terminated


def setting(help: str, default=dataclasses.MISSING, choices: Sequence[str] = (), alias: str = ""):
    """Returns a dataclass field that is also a flag.

    Args:
      help: help text of the flag.
      default: default value; without one the flag is required.
      choices: allowed values of an enum flag; empty for any.
      alias: another name of the flag; empty for none.
    """
    metadata = {"help": help, "choices": tuple(choices), "alias": alias}
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


def define_flags(settings_class: type, flag_values: flags.FlagValues, module_name: str) -> None:
    """Defines one flag for every field of a settings class.

    Args:
      settings_class: dataclass whose fields come from `setting`.
      flag_values: the object in which the flags are defined.
      module_name: the module whose `--help` lists the flags.
    """
    types = typing.get_type_hints(settings_class)
    for field in dataclasses.fields(settings_class):
        required = field.default is dataclasses.MISSING
        default = None if required else field.default
        options = {"flag_values": flag_values, "module_name": module_name, "required": required}
        choices = field.metadata["choices"]
        if choices:
            flags.DEFINE_enum(field.name, default, choices, field.metadata["help"], **options)
        else:
            _DEFINERS[_plain(types[field.name])](field.name, default, field.metadata["help"], **options)
        if alias := field.metadata["alias"]:
            flags.DEFINE_alias(alias, field.name, flag_values, module_name)


def _plain(annotation) -> type:
    """Returns the type of a flag without None: `int` for `int | None`."""
    return next((kind for kind in typing.get_args(annotation) if kind is not type(None)), annotation)


def settings_from_flags(settings_class: type, flag_values: flags.FlagValues):
    """Returns settings from parsed flags, with `~/` expanded, which a shell does not do after `--flag=`.

    Raises:
      InputError: a required flag is empty, or a value is not UTF-8; or the checks of the settings class fail.
    """
    values = {}
    for field in dataclasses.fields(settings_class):
        value = flag_values[field.name].value
        if isinstance(value, str):
            require(
                field.default is not dataclasses.MISSING or bool(value.strip()), f"--{field.name} is empty; give it"
            )
            # Python keeps such bytes as lone surrogates, which TensorFlow cannot take.
            require(is_utf8(value), f"--{field.name}={value!a}: is not UTF-8; rename the file")
            value = _HOME.sub(lambda found: found[1] + os.path.expanduser("~"), value)
        values[field.name] = value
    return settings_class(**values)


def parse(settings_class: type, arguments: Sequence[str]):
    """Returns settings from command-line arguments, independently of the flags of the process.

    Args:
      settings_class: dataclass whose fields come from `setting`.
      arguments: arguments as passed by a shell, without the program's name.

    Raises:
      InputError: the settings contradict each other, or an argument is not a flag.
      absl.flags.Error: a flag is unknown, or a value has the wrong type.
    """
    flag_values = flags.FlagValues()
    define_flags(settings_class, flag_values, settings_class.__module__)
    _refuse_words(flag_values(["program", *arguments])[1:])
    return settings_from_flags(settings_class, flag_values)


def with_flagfile(settings, path: str, **changes):
    """Returns a copy of settings in which the values of a flag file replace the current ones.

    Args:
      settings: dataclass whose fields come from `setting`.
      path: path of the file, in the format of `--flagfile`.
      **changes: further replacements, over which the file takes precedence.

    Raises:
      InputError: the file cannot be read or contains an unknown flag, or the settings contradict each other.
    """
    given = dataclasses.asdict(settings) | changes
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    try:
        return parse(type(settings), [*words, f"--flagfile={path}"])
    except flags.Error as error:
        raise InputError(str(error)) from error


def _refuse_words(words: Sequence[str]) -> None:
    # absl would read "--do_train False" as --do_train=true and a positional argument.
    if words:
        raise InputError(f"unexpected argument {words[0]!r}; write flags as --name=value")


def to_json(settings) -> str:
    """Returns the resolved settings as JSON text, to be stored beside the output."""
    return json.dumps(dataclasses.asdict(settings), indent=2) + "\n"


def require(condition: bool, message: str) -> None:
    """Raises InputError with the message unless the condition is true."""
    if not condition:
        raise InputError(message)


def check_values(settings) -> None:
    """Raises InputError for a value that a flag could not have: no number, or none of its choices."""
    types = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value, kind = getattr(settings, field.name), _plain(types[field.name])
        if value is None or value is field.default:
            continue
        choices = field.metadata["choices"]
        require(not choices or value in choices, f"--{field.name}={value!r}: must be one of {', '.join(choices)}")
        if kind in _NUMBERS:
            accepted, what = _NUMBERS[kind]
            right = isinstance(value, accepted) and isinstance(value, bool) == (kind is bool)
            require(right, f"--{field.name}={value!r}: must be {what}")


def require_positive(settings, *names: str) -> None:
    """Raises InputError unless these settings are finite numbers above 0, or None."""
    for name in names:
        value = getattr(settings, name)
        require(value is None or 0 < value < math.inf, f"--{name}={value}: must be above 0 and finite")


def require_folder(flag: str, path: str) -> None:
    """Raises InputError unless a path can be the folder of TensorFlow's checkpoints and SavedModels.

    TensorFlow reads these paths as patterns, so it would write files there that it cannot find again.
    """
    require(bool(path), f"--{flag} is empty; name a folder")
    special = sorted(set(path) & set("*?[\\"))
    require(
        not special,
        f"--{flag}={path}: TensorFlow cannot read a path with {' '.join(special)} again; name another folder",
    )


@contextlib.contextmanager
def hidden_modules(*names: str):
    """Lets modules look as if they were not installed, unless they are loaded already."""
    names = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def run(settings_class: type, main: Callable, doc: str) -> None:
    """Runs a script: parses its flags and calls `main(settings)`; invalid input gives a one-line error, exit code 1.

    Args:
      settings_class: the script's settings.
      main: called with the resolved settings; it imports heavy modules itself, so that `--help` is fast.
      doc: text that `--help` prints above the flags.
    """
    # Modules and graphs are millions of objects that stay. Searching them for garbage would take a second or more.
    gc.set_threshold(100_000, 20, 20)
    # TensorFlow would load Keras 3, plotting and statistics with it, for a `tf.keras` that nothing here uses.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    # --help prints the docstring of __main__, which is empty in the stub of a console command.
    sys.modules["__main__"].__doc__ = doc
    define_flags(settings_class, flags.FLAGS, sys.argv[0])
    flags.DEFINE_boolean("debug", False, "show full tracebacks and TensorFlow's own log", module_name=sys.argv[0])

    def run_and_exit(words: Sequence[str]) -> None:
        code = _main_with_clear_errors(settings_class, main, words[1:])
        gc.freeze()  # the interpreter would search all objects once more before it ends
        sys.exit(code)

    app.run(run_and_exit, flags_parser=parse_flags)


def _main_with_clear_errors(settings_class: type, main: Callable, words: Sequence[str]) -> int:
    debug = flags.FLAGS["debug"].value
    _set_up_logging(debug)
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
        print("stopped; run the same command again to resume", file=sys.stderr)
        return 143 if isinstance(stop, Terminated) else 130
    except Exception as error:
        if debug or not _comes_from_the_machine(error):
            raise
        print(f"error: {_one_line(error)} (--debug shows the full traceback)", file=sys.stderr)
        return 1
    return 0


def _comes_from_the_machine(error: Exception) -> bool:
    """Returns whether TensorFlow reports a problem of disk, network, memory or data rather than a bug."""
    import tensorflow as tf

    kinds = (
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.FailedPreconditionError,
        tf.errors.AlreadyExistsError,
        tf.errors.DataLossError,
        tf.errors.ResourceExhaustedError,
        tf.errors.OutOfRangeError,  # "File too large": a limit of the file system or the user
        tf.errors.UnavailableError,
    )
    # TensorFlow has no error classes for these reasons.
    reasons = [os.strerror(number) for number in (errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE)]
    if isinstance(error, tf.errors.UnimplementedError):  # a path such as https://...
        return error.message.startswith("File system scheme")
    return isinstance(error, kinds) or (
        isinstance(error, tf.errors.OpError) and any(error.message.endswith(f"; {reason}") for reason in reasons)
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _set_up_logging(debug: bool) -> None:
    # This project uses tf_keras. Importing TensorFlow with Keras 3 takes 1.2 s longer.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if not debug:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        python_logging.getLogger("tensorflow").setLevel(python_logging.ERROR)
    absl_logging.set_verbosity(absl_logging.INFO)
    handler = absl_logging.get_absl_handler()
    handler.addFilter(lambda record: debug or _is_ours_or_serious(record))
    handler.setFormatter(_LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.python_handler.setStream(_BesideBars())


class _BesideBars:
    """Standard error for log lines, which clears progress bars before a line and draws them again after it."""

    def write(self, text: str) -> None:
        tqdm = sys.modules.get("tqdm")
        # without a bar, take no lock: forked processes share it, and one may be killed while it holds it
        bars = tqdm and getattr(tqdm.tqdm, "_instances", ())
        with tqdm.tqdm.external_write_mode(file=sys.stderr) if bars else contextlib.nullcontext():
            sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def close(self) -> None:
        """Leaves standard error open; logging closes its streams at the end of the process."""


class _LineFormatter(python_logging.Formatter):
    """Formats time and message, and adds the level only for warnings and errors."""

    def formatMessage(self, record: python_logging.LogRecord) -> str:
        line = super().formatMessage(record)
        if record.levelno > python_logging.INFO:
            line = line.replace(record.message, f"{record.levelname.lower()}: {record.message}", 1)
        return line


def _is_ours_or_serious(record: python_logging.LogRecord) -> bool:
    """Returns False for informational messages of libraries, which would hide the script's own lines."""
    noisy = any(f"{os.sep}{name}{os.sep}" in record.pathname for name in ("orbit", "tensorflow", "tf_keras"))
    return record.levelno > python_logging.INFO or not noisy
