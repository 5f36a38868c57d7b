"""Imports PyTorch only if tests marked `torch` are selected and PyTorch is installed."""

import importlib.util


def pytest_ignore_collect(collection_path, config):
    """Keeps `make test` from importing PyTorch. Without PyTorch, `-m torch` finds no test and fails."""
    if "not torch" in config.getoption("markexpr") or importlib.util.find_spec("torch") is None:
        return True
    return None
