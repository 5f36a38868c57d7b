"""Formats the lines of a script's log, and drops informational lines of libraries."""

import contextlib
import functools
import logging as python_logging
import os
import sys

from absl import logging as absl_logging

_FORMATS = "%(asctime)s %(message)s", "%H:%M:%S"


def set_up(debug: bool) -> None:
    """Sets up the log of the process; with `debug`, the log also contains all lines of libraries."""
    # This project uses tf_keras. Importing TensorFlow with Keras 3 takes 1.2 s longer.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    _choose_lines(debug)
    handler = absl_logging.get_absl_handler()
    handler.setFormatter(_LineFormatter(*_FORMATS))
    handler.python_handler.setStream(_BesideBars())


@functools.cache
def set_up_in_program() -> None:
    """Shows the same lines in a Python program or a notebook; a program that has set up its own handlers keeps them.
    Only the first call has an effect, so a program can choose another verbosity afterwards."""
    _choose_lines(debug=False)
    root = python_logging.getLogger()
    if not root.handlers:
        handler = python_logging.StreamHandler(_BesideBars())
        handler.setFormatter(_LineFormatter(*_FORMATS))
        root.addHandler(handler)


def _choose_lines(debug: bool) -> None:
    absl_logging.set_verbosity(absl_logging.INFO)
    if not debug:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        python_logging.getLogger("tensorflow").setLevel(python_logging.ERROR)
        absl_logging.get_absl_logger().addFilter(_is_ours_or_serious)


class _BesideBars:
    """Writes log lines to standard error. Progress bars are cleared before each line and redrawn after it."""

    def write(self, text: str) -> None:
        tqdm = sys.modules.get("tqdm")
        # Take tqdm's lock only if there is a bar: forked processes share the lock, and a process may be killed while it
        # holds the lock.
        bars = tqdm and getattr(tqdm.tqdm, "_instances", ())
        with tqdm.tqdm.external_write_mode(file=sys.stderr) if bars else contextlib.nullcontext():
            sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def close(self) -> None:
        """Leaves standard error open, because logging closes its streams at the end of the process."""


class _LineFormatter(python_logging.Formatter):
    """Formats time and message, and adds the level only for warnings and errors."""

    def formatMessage(self, record: python_logging.LogRecord) -> str:
        line = super().formatMessage(record)
        if record.levelno > python_logging.INFO:
            line = line.replace(record.message, f"{record.levelname.lower()}: {record.message}", 1)
        return line


def _is_ours_or_serious(record: python_logging.LogRecord) -> bool:
    """Returns False for informational lines of libraries, which would hide the script's own lines."""
    noisy = any(f"{os.sep}{name}{os.sep}" in record.pathname for name in ("orbit", "tensorflow", "tf_keras"))
    return record.levelno > python_logging.INFO or not noisy
