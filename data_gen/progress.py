"""What a person sees of long work: a bar on a terminal, else a line every ten seconds."""

import sys
import time

import tqdm
from absl import logging

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts work done; a context manager.

    Args:
      what: what is being done ("tokenizing").
      total: how much there is to do, in `unit`.
      unit: "B" for bytes, else a word ("documents").
    """

    def __init__(self, what: str, total: int, unit: str):
        self._what, self._total, self._unit = what, total, unit
        self._done, self._done_before = 0, 0
        self._started = self._last_line = time.monotonic()
        self._bar = tqdm.tqdm(
            total=total, desc=what, unit=unit, unit_scale=True, disable=not sys.stderr.isatty(), dynamic_ncols=True
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception) -> None:
        self._bar.close()

    def start_at(self, done: int) -> None:
        """Tells what an earlier run has done; it does not count for the rate."""
        self._done = self._done_before = done
        self._bar.update(done)

    def update(self, done: int, note: str = "") -> None:
        """Adds `done` to the work done; `note` stands at the line's end."""
        self._done += done
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done)
        now = time.monotonic()
        if self._bar.disable and now - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = now
            rate = (self._done - self._done_before) / (now - self._started)
            left = (self._total - self._done) / rate if rate else float("inf")
            amounts = " of ".join(_amount(value, self._unit) for value in (self._done, self._total))
            speed = f"{_amount(rate, self._unit)}/s, {_duration(left)} left"
            logging.info("%s: %s, %s%s", self._what, amounts, speed, f", {note}" if note else "")


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 1e6:,.1f} MB"
    return f"{value:,.0f} {unit}"


def _duration(seconds: float) -> str:
    if seconds == float("inf"):
        return "unknown time"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
