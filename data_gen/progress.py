"""Progress of a stage of data generation: its amount, its rate and the time left."""

from absl import logging

from tfrecords.progress_bar import ProgressBar


class Progress:
    """Counts work done, on a bar or in log lines; a context manager.

    Args:
      what: a word or two for what is being done.
      total: units of work in all; None if that is unknown.
      unit: what is counted; "B" is shown in megabytes.
    """

    def __init__(self, what: str, total: int | None, unit: str):
        self._what, self._total, self._unit = what, total, unit
        self._bar = ProgressBar(what, total, unit, unit_scale=unit == "B", leave=False)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception) -> None:
        self._bar.close()

    def start_at(self, done: int) -> None:
        """Adds what an earlier run has done; it does not count in the rate."""
        self._bar.add_done_before(done)

    def update(self, amount: int = 1, note: str = "") -> None:
        """Adds work done; `note` stands at the line's end."""
        if self._bar.advance(amount, note):
            logging.info("%s%s", self._line(), f", {note}" if note else "")

    def _line(self) -> str:
        scale, unit, digits = (1e6, "MB", 1) if self._unit == "B" else (1, self._unit, 0)
        line = f"{self._what}: {self._bar.done / scale:,.{digits}f}"
        if self._total is not None:
            line += f" of {self._total / scale:,.{digits}f}"
        line += f" {unit}, {self._bar.rate / scale:,.{digits}f} {unit}/s"
        left = self._bar.time_left
        return f"{line}, {left} left" if left else line
