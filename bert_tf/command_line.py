"""From a frozen dataclass to absl flags and back, and how a script ends on bad input.

A script's settings are one flat frozen dataclass; its fields are the script's flags. So a flag's
name, type, default and help stand in one place, and the library never sees a flag.
"""

import dataclasses
import errno
import json
import logging as python_logging
import os
import signal
import sys
import typing
from collections.abc import Callable, Sequence

from absl import app, flags
from absl import logging as absl_logging

from tfrecords.errors import InputError
from tfrecords.flag_parsing import parse_flags

_DEFINERS = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


class Terminated(BaseException):
    """SIGTERM came: everything is left as after Ctrl-C."""


def _terminate(number, frame) -> None:
    raise Terminated


def setting(help: str, default=dataclasses.MISSING, choices: Sequence[str] = (), alias: str = ""):
    """A dataclass field that is also a flag; without a default the flag is required. `alias` is its other name."""
    metadata = {"help": help, "choices": tuple(choices), "alias": alias}
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


def define_flags(settings_class: type, flag_values: flags.FlagValues, module_name: str) -> None:
    """Defines one flag for every field of a settings class.

    Args:
      settings_class: dataclass whose fields come from `setting`.
      flag_values: where to define them.
      module_name: the module whose `--help` lists them.
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
    """The type of a flag whose default may be None: `int` for `int | None`."""
    return next((kind for kind in typing.get_args(annotation) if kind is not type(None)), annotation)


def settings_from_flags(settings_class: type, flag_values: flags.FlagValues):
    """Reads the parsed flags into the settings class, whose own checks may raise InputError."""
    names = [field.name for field in dataclasses.fields(settings_class)]
    return settings_class(**{name: flag_values[name].value for name in names})


def parse(settings_class: type, arguments: Sequence[str]):
    """Settings from command-line words, apart from the process's own flags.

    Args:
      settings_class: dataclass whose fields come from `setting`.
      arguments: words as a shell would pass them, without the program's name.

    Raises:
      InputError: the settings contradict each other, or a word is no flag.
      absl.flags.Error: an unknown flag, or a value of the wrong type.
    """
    flag_values = flags.FlagValues()
    define_flags(settings_class, flag_values, settings_class.__module__)
    _refuse_words(flag_values(["program", *arguments])[1:])
    return settings_from_flags(settings_class, flag_values)


def with_flagfile(settings, path: str, **changes):
    """Settings with what a flag file says in place of their own.

    Args:
      settings: dataclass whose fields come from `setting`.
      path: of the file, as `--flagfile` reads it.
      **changes: values that stand where the file says nothing.

    Raises:
      InputError: the file cannot be read, or holds what is no flag; or the settings contradict each other.
    """
    given = dataclasses.asdict(settings) | changes
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    try:
        return parse(type(settings), [*words, f"--flagfile={path}"])
    except flags.Error as error:
        raise InputError(str(error)) from error


def _refuse_words(words: Sequence[str]) -> None:
    # "--do_train False" would leave --do_train true and the word unread
    if words:
        raise InputError(f"unexpected word {words[0]!r}; write flags as --name=value")


def to_json(settings) -> str:
    """The resolved settings as JSON text, to be kept beside what they made."""
    return json.dumps(dataclasses.asdict(settings), indent=2) + "\n"


def require(condition: bool, message: str) -> None:
    """Raises InputError with the message unless the condition holds."""
    if not condition:
        raise InputError(message)


def run(settings_class: type, main: Callable, doc: str) -> None:
    """Runs a script: flags in, `main(settings)`, one clear line and exit code 1 on bad input.

    Args:
      settings_class: the script's settings.
      main: called with the resolved settings; imports what is heavy inside, so that `--help` is quick.
      doc: what `--help` says above the flags.
    """
    # console commands run from a stub that has no text of its own for --help
    sys.modules["__main__"].__doc__ = doc
    define_flags(settings_class, flags.FLAGS, sys.argv[0])
    flags.DEFINE_boolean("debug", False, "show the whole traceback and TensorFlow's own log", module_name=sys.argv[0])
    app.run(lambda words: sys.exit(_main_with_clear_errors(settings_class, main, words[1:])), flags_parser=parse_flags)


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
        print("stopped; run the same command again to go on", file=sys.stderr)
        return 143 if isinstance(stop, Terminated) else 130
    except Exception as error:
        if debug or not _comes_from_the_machine(error):
            raise
        print(f"error: {_one_line(error)} (--debug shows the whole traceback)", file=sys.stderr)
        return 1
    return 0


def _comes_from_the_machine(error: Exception) -> bool:
    """Whether TensorFlow reports the disk, the network, memory or data rather than a defect of the code."""
    import tensorflow as tf

    kinds = (
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.FailedPreconditionError,
        tf.errors.AlreadyExistsError,
        tf.errors.DataLossError,
        tf.errors.ResourceExhaustedError,
        tf.errors.OutOfRangeError,  # "File too large": a limit of the file system or of the user
        tf.errors.UnavailableError,
    )
    # TensorFlow has no kind of its own for these
    reasons = [os.strerror(number) for number in (errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE)]
    return isinstance(error, kinds) or (
        isinstance(error, tf.errors.OpError) and any(error.message.endswith(f"; {reason}") for reason in reasons)
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _set_up_logging(debug: bool) -> None:
    # Keras means tf_keras here; with Keras 3, TensorFlow's import takes 1.2 s more
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if not debug:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        python_logging.getLogger("tensorflow").setLevel(python_logging.ERROR)
    absl_logging.set_verbosity(absl_logging.INFO)
    handler = absl_logging.get_absl_handler()
    handler.addFilter(lambda record: debug or _is_ours_or_serious(record))
    handler.setFormatter(_LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))


class _LineFormatter(python_logging.Formatter):
    """Time and message; the level only where it is more than information."""

    def formatMessage(self, record: python_logging.LogRecord) -> str:
        line = super().formatMessage(record)
        if record.levelno > python_logging.INFO:
            line = line.replace(record.message, f"{record.levelname.lower()}: {record.message}", 1)
        return line


def _is_ours_or_serious(record: python_logging.LogRecord) -> bool:
    """False for the libraries' notes on what they are doing, which bury the script's own lines."""
    noisy = any(f"{os.sep}{name}{os.sep}" in record.pathname for name in ("orbit", "tensorflow", "tf_keras"))
    return record.levelno > python_logging.INFO or not noisy
