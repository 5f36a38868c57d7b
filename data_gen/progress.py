"""Progress of long work: a bar on a terminal, otherwise one log line every ten seconds."""

import sys
import time

import tqdm
from absl import logging

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """A context manager that counts finished work and reports it.

    Args:
      what: a short name of the work.
      total: amount of work in `unit`; None if unknown.
      unit: name of the unit; "B" is shown in megabytes.
    """

    def __init__(self, what: str, total: int | None, unit: str):
        self._what, self._total, self._unit = what, total, unit
        self._done, self._done_before = 0, 0
        self._start = self._last_line = time.monotonic()
        self._bar = tqdm.tqdm(
            total=total, unit=unit, desc=what, unit_scale=unit == "B", disable=not sys.stderr.isatty(), leave=False
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception) -> None:
        self._bar.close()

    def start_at(self, done: int) -> None:
        """Adds the work of an earlier run, which does not count towards the rate."""
        self._done += done
        self._done_before += done
        self._bar.update(done)

    def update(self, amount: int = 1, note: str = "") -> None:
        """Adds finished work; `note` is appended to the line."""
        self._done += amount
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(amount)
        now = time.monotonic()
        if self._bar.disable and now - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = now
            logging.info("%s%s", self._line(now - self._start), f", {note}" if note else "")

    def _line(self, seconds: float) -> str:
        scale, unit, digits = (1e6, "MB", 1) if self._unit == "B" else (1, self._unit, 0)
        rate = (self._done - self._done_before) / seconds
        line = f"{self._what}: {self._done / scale:,.{digits}f}"
        if self._total is not None:
            line += f" of {self._total / scale:,.{digits}f}"
        line += f" {unit}, {rate / scale:,.{digits}f} {unit}/s"
        if self._total is not None and rate:
            line += f", {_duration((self._total - self._done) / rate)} left"
        return line


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
