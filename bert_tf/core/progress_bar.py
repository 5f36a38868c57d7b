"""Shows the progress of long work: a bar on a terminal or in a notebook, otherwise a log line every ten seconds."""

import os
import sys
import time

import tqdm.auto
from absl import logging

SECONDS_BETWEEN_LINES = 10.0
# The bar itself comes last, because a narrow terminal cuts the end of the line.
_FORMAT = "{desc} {n_fmt}/{total_fmt} {unit}{postfix} {bar}"


class ProgressBar:
    """A context manager that counts work; draws a tqdm bar on a terminal or in a notebook, and logs lines elsewhere.
    `total`: total units of work; None if unknown.
    `unit`: name of the units that are counted; "B" is shown in megabytes.
    `done`: units that an earlier run has completed; the rate does not include them.
    `compiles`: whether the work before the first `advance` includes compilation; if so, the rate and the time left are
      computed only from later work.
    `delay`: seconds before the bar appears.
    `leave`: whether the bar stays on the terminal at the end.
    `done`: units completed so far, including earlier runs."""

    def __init__(
        self, what: str, total: int | None, unit: str, done: int = 0, compiles: bool = False, delay: float = 0.0,
        leave: bool = False,
    ):  # fmt: skip
        self.done, self._total, self._compiles, self._what, self._unit = done, total, compiles, what, unit
        self._start = self._last_line = time.monotonic()
        self._done_at_start = done
        has_bar = "ipykernel" in sys.modules or _has_columns(sys.stderr)  # the module of a notebook's kernel
        self._bar = tqdm.auto.tqdm(
            desc=what, total=total, unit=unit, initial=done, disable=not has_bar, dynamic_ncols=True,
            bar_format=_FORMAT, delay=delay, leave=leave, unit_scale=unit == "B",
        )  # fmt: skip

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def add_done_before(self, amount: int) -> None:
        """Adds work that the rate does not include, such as the work of an earlier run."""
        self.done += amount
        self._done_at_start += amount
        self._bar.update(amount)

    def end_compilation(self, amount: int) -> None:
        """Adds the work that was done during compilation; the rate excludes this work. Later calls do nothing."""
        if self._compiles:
            self._compiles, self._start = False, time.monotonic()
            self.add_done_before(amount)

    def update(self, amount: int = 1, note: str = "") -> None:
        """Adds completed work, and logs a line if one is due; `note` is appended to the line."""
        if self.advance(amount, note):
            logging.info("%s%s", self._line(), f", {note}" if note else "")

    def _line(self) -> str:
        scale, unit, digits = (1e6, "MB", 1) if self._unit == "B" else (1, self._unit, 0)
        line = f"{self._what}: {self.done / scale:,.{digits}f}"
        if self._total is not None:
            line += f" of {self._total / scale:,.{digits}f}"
        line += f" {unit}"
        if rate := self.rate:
            line += f", {rate / scale:,.{digits if rate >= scale else 1}f} {unit}/s"
        return f"{line}, {self.time_left} left" if self.time_left else line

    def advance(self, amount: int, note: str = "", is_last: bool = False) -> bool:
        """Adds completed work, for a caller that writes its own lines.
        `amount`: number of units.
        `is_last`: whether this is the last call, after which a log line is always due.
        Returns whether the caller should log a line now; always False on a terminal."""
        if self._compiles:
            self.end_compilation(amount)
        else:
            self.done += amount
            self._bar.update(amount)
        left = f"{self.time_left} left" if self.time_left else ""
        self._bar.set_postfix_str(", ".join(filter(None, (left, note))), refresh=bool(note))
        now = time.monotonic()
        if not self._bar.disable or not (is_last or now - self._last_line > SECONDS_BETWEEN_LINES):
            return False
        self._last_line = now
        return True

    @property
    def rate(self) -> float:
        """Units per second in this run; 0 if unknown."""
        seconds = time.monotonic() - self._start
        return (self.done - self._done_at_start) / seconds if seconds else 0.0

    @property
    def time_left(self) -> str:
        """The remaining time at the current rate, in the format of `clock`; "" if unknown."""
        rate = self.rate
        return clock((self._total - self.done) / rate) if self._total is not None and rate else ""

    def close(self) -> None:
        self._bar.close()


def _has_columns(file) -> bool:
    """Returns whether a file is a terminal with a width; terminals of some containers and sessions lack a width."""
    if not file.isatty():
        return False
    try:
        return os.get_terminal_size(file.fileno()).columns > 0
    except (OSError, ValueError):  # not a file of the operating system, as in a test or a notebook
        return True


def clock(seconds: float) -> str:
    """Writes a duration in hours, minutes and seconds: "1:02:03", "2:03"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
