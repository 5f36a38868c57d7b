"""Showing how far long work has come: a bar on a terminal, else a log line every ten seconds."""

import sys
import time

import tqdm
from absl import logging

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts work done; a context manager.

    Args:
      what: a word or two for what is being done.
      total: units of work in all; None where nobody knows.
      unit: what is counted; "B" is shown in kilo- and megabytes.
    """

    def __init__(self, what: str, total: int | None, unit: str):
        self._what, self._total, self._unit = what, total, unit
        self._done = 0
        self._start = self._last_line = time.monotonic()
        self._bar = tqdm.tqdm(
            total=total, unit=unit, desc=what, unit_scale=unit == "B", disable=not sys.stderr.isatty(), leave=False
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception) -> None:
        self._bar.close()

    def update(self, amount: int = 1) -> None:
        """Adds work done."""
        self._done += amount
        self._bar.update(amount)
        now = time.monotonic()
        if self._bar.disable and now - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = now
            logging.info("%s", self._line(now - self._start))

    def _line(self, seconds: float) -> str:
        scale, unit, digits = (1e6, "MB", 1) if self._unit == "B" else (1, self._unit, 0)
        of_total = "" if self._total is None else f" of {self._total / scale:.{digits}f}"
        rate = self._done / scale / seconds
        return f"{self._what}: {self._done / scale:.{digits}f}{of_total} {unit}, {rate:.{digits}f} {unit}/s"
