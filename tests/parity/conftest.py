"""Imports PyTorch only where the tests marked `torch` are wanted and it is there."""

import importlib.util


def pytest_ignore_collect(collection_path, config):
    """Else `make test` would load PyTorch, or fail without it; `-m torch` without PyTorch finds no test and fails."""
    if "not torch" in config.getoption("markexpr") or importlib.util.find_spec("torch") is None:
        return True
    return None
