"""Shows the progress of long work: as a bar on a terminal, otherwise as a log line every ten seconds."""

import os
import sys
import time

import tqdm

SECONDS_BETWEEN_LINES = 10.0
# The bar itself comes last, because a narrow terminal cuts the end of the line.
_FORMAT = "{desc} {n_fmt}/{total_fmt} {unit}{postfix} {bar}"


class ProgressBar:
    """Counts work; draws a tqdm bar on a terminal, and elsewhere tells the caller when to log a line.

    Args:
      what: one or two words that name the work.
      total: total units of work; None if unknown.
      unit: name of the units that are counted.
      done: units that an earlier run has completed; the rate does not include them.
      compiles: whether the work before the first `advance` includes compilation; if so, the rate and the time left are
        computed only from later work.
      **options: further arguments for tqdm.

    Attributes:
      done: units completed so far, including earlier runs.
    """

    def __init__(self, what: str, total: int | None, unit: str, done: int = 0, compiles: bool = False, **options):
        self.done, self._total, self._compiles = done, total, compiles
        self._start = self._last_line = time.monotonic()
        self._done_at_start = done
        self._bar = tqdm.tqdm(
            desc=what, total=total, unit=unit, initial=done, disable=not _has_columns(sys.stderr), dynamic_ncols=True,
            bar_format=_FORMAT, **options,
        )  # fmt: skip

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

    def advance(self, amount: int, note: str = "", is_last: bool = False) -> bool:
        """Adds completed work.

        Args:
          amount: number of units.
          is_last: whether this is the last call, after which a log line is always due.

        Returns:
          Whether the caller should log a line now; always False on a terminal.
        """
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
        """Ends the bar."""
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
