"""Waiting for a state instead of a time, so that no test depends on the machine's speed."""

import time
from collections.abc import Callable

# Seconds. Only what will never come takes longer, on whatever machine.
PATIENCE = 300.0


def wait_until(condition: Callable[[], object]) -> None:
    """Returns once a condition holds; fails if it does not come to hold."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)
