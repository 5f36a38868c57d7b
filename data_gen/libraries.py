"""The libraries of the extra `text`, loaded when first needed."""

import functools
import importlib
import types

from tfrecords.errors import InputError


@functools.cache
def load(name: str) -> types.ModuleType:
    """A library of the extra `text`.

    Args:
        name: str, the module's name.

    Returns:
        The module.

    Raises:
        InputError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"{name} is not installed, which raw text needs: pip install 'bert_tf[text]', or give text that stands one "
            "sentence a line"
        ) from error
