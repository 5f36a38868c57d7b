"""Handles SIGTERM and Ctrl-C during training: the process saves a checkpoint before it ends."""

import signal
import threading

from bert_tf.core.command_line import Terminated

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption:
    """Records the first SIGTERM or Ctrl-C and lets training continue; a second signal ends the process. Use this class
    as a context manager in the main thread. Other threads receive no signals, so it has no effect there."""

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
        if self.noted and kind is None:  # the signal arrived after the last check
            self.stop()

    def _note(self, number, frame) -> None:
        self._noted = number
        for each in self._before:
            # Restore the system's default action, since Python runs a handler only after TensorFlow returns.
            signal.signal(each, signal.SIG_DFL)

    @property
    def noted(self) -> bool:
        return bool(self._noted)

    def stop(self) -> None:
        """Raises the exception that belongs to the signal.
        Raises Terminated: after SIGTERM.
        Raises KeyboardInterrupt: after Ctrl-C."""
        raise KeyboardInterrupt if self._noted == signal.SIGINT else Terminated
