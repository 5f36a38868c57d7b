"""Progress of long work: a bar on a terminal, else a log line every ten seconds."""

import sys
import time

import tqdm

SECONDS_BETWEEN_LINES = 10.0


class ProgressBar:
    """Counts work; draws a tqdm bar on a terminal, and else says when a log line is due.

    Args:
      what: a word or two for the work.
      total: units of work in all; None if that is unknown.
      unit: what is counted.
      done: units that an earlier run has done, which do not count in the rate.
      **options: of tqdm.

    Attributes:
      done: units done so far, by earlier runs too.
    """

    def __init__(self, what: str, total: int | None, unit: str, done: int = 0, **options):
        self.done, self._done_before, self._total = done, done, total
        self._start = self._last_line = time.monotonic()
        self._bar = tqdm.tqdm(
            desc=what, total=total, unit=unit, initial=done, disable=not sys.stderr.isatty(), **options
        )

    def add_done_before(self, amount: int) -> None:
        """Adds work that an earlier run has done."""
        self.done += amount
        self._done_before += amount
        self._bar.update(amount)

    def advance(self, amount: int, note: str = "", is_last: bool = False) -> bool:
        """Adds work done.

        Args:
          amount: in units.
          note: stands at the bar's end.
          is_last: whether a log line is due in any case.

        Returns:
          Whether the caller is to log a line now; never on a terminal.
        """
        self.done += amount
        self._bar.update(amount)
        if note:
            self._bar.set_postfix_str(note)
        now = time.monotonic()
        if not self._bar.disable or not (is_last or now - self._last_line > SECONDS_BETWEEN_LINES):
            return False
        self._last_line = now
        return True

    @property
    def rate(self) -> float:
        """Units a second of this run."""
        return (self.done - self._done_before) / (time.monotonic() - self._start)

    @property
    def time_left(self) -> str:
        """The time that the rest takes at this rate, as "1:02:03"; "" if nobody can know."""
        rate = self.rate
        return clock((self._total - self.done) / rate) if self._total is not None and rate else ""

    def close(self) -> None:
        """Ends the bar."""
        self._bar.close()


def clock(seconds: float) -> str:
    """Writes a duration in hours, minutes and seconds: "1:02:03", "2:03"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
