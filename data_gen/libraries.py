"""Imports the libraries of the extra `text` on first use."""

import functools
import importlib
import types

from bert_tf.core.errors import InputError


@functools.cache
def load(name: str) -> types.ModuleType:
    """Imports a library of the extra `text`.

    Args:
        name: str, the module's name.

    Returns:
        The module.

    Raises:
        InputError: The library is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"{name} is not installed, but raw text needs it: pip install 'bert_tf[text]', or give text with one "
            "sentence per line"
        ) from error
