"""SIGTERM and Ctrl-C during training: the current step is finished and saved before the process ends."""

import signal
import threading

from bert_tf.core.command_line import Terminated

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption:
    """Notes the first SIGTERM or Ctrl-C and lets training continue; a second one ends the process.

    A context manager for the main thread. In another thread, where no signal arrives, it notes nothing.
    """

    def __init__(self):
        self._noted = 0
        self._before = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.noted and kind is None:  # it came after the work had last looked
            self.stop()

    def _note(self, number, frame) -> None:
        self._noted = number
        for each in self._before:
            # the system's default action, since a Python handler would wait for TensorFlow to return
            signal.signal(each, signal.SIG_DFL)

    @property
    def noted(self) -> bool:
        """Whether training must stop."""
        return bool(self._noted)

    def stop(self) -> None:
        """Stops as the signal would have done.

        Raises:
          Terminated: after SIGTERM.
          KeyboardInterrupt: after Ctrl-C.
        """
        raise KeyboardInterrupt if self._noted == signal.SIGINT else Terminated
