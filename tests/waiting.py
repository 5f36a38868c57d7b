"""Waits for states instead of times, so that tests do not depend on the machine's speed."""

import time
from collections.abc import Callable

# Seconds. On any machine, only a state that never comes takes longer.
PATIENCE = 300.0


def wait_until(condition: Callable[[], object]) -> None:
    """Returns when a condition is true; fails if it never becomes true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)
