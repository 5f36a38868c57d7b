"""Reports the progress of a stage of a job: the finished amount, the rate and the time left."""

from absl import logging

from bert_tf.core.progress_bar import ProgressBar


class Progress:
    """A context manager that counts finished work and reports it.

    Args:
      what: a short name of the work.
      total: amount of work in `unit`; None if unknown.
      unit: name of the unit; "B" is shown in megabytes.
      compiles: whether the first update includes compilation; if so, the rate excludes this update.
      delay: seconds before the bar appears.
    """

    def __init__(self, what: str, total: int | None, unit: str, compiles: bool = False, delay: float = 0.0):
        self._what, self._total, self._unit = what, total, unit
        self._bar = ProgressBar(what, total, unit, compiles=compiles, delay=delay, unit_scale=unit == "B", leave=False)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception) -> None:
        self._bar.close()

    def start_at(self, done: int) -> None:
        """Adds the work of an earlier run, which does not count towards the rate."""
        self._bar.add_done_before(done)

    def update(self, amount: int = 1, note: str = "") -> None:
        """Adds finished work; `note` is appended to the line."""
        if self._bar.advance(amount, note):
            logging.info("%s%s", self._line(), f", {note}" if note else "")

    def _line(self) -> str:
        scale, unit, digits = (1e6, "MB", 1) if self._unit == "B" else (1, self._unit, 0)
        line = f"{self._what}: {self._bar.done / scale:,.{digits}f}"
        if self._total is not None:
            line += f" of {self._total / scale:,.{digits}f}"
        line += f" {unit}"
        if rate := self._bar.rate:
            line += f", {rate / scale:,.{digits if rate >= scale else 1}f} {unit}/s"
        left = self._bar.time_left
        return f"{line}, {left} left" if left else line
