"""The exception for invalid input.

The exception is defined here, at the bottom of the import order, so that every package can raise it.
"""

import contextlib
from collections.abc import Iterator

# What code that reads a file raises if the content is not what the code expects.
_OF_DAMAGE = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError, OSError)


class InputError(ValueError):
    """Invalid input from the user. The message states what is wrong, where, and how to fix it.

    Scripts print the message as one line and exit with code 1. Only with `--debug` do they print a traceback. Any
    function that reads what a user gave may raise this error; docstrings mention it only in the public Python API.
    """


@contextlib.contextmanager
def unreadable(path: str) -> Iterator[None]:
    """Turns the errors of code that reads a user's files into an InputError that names them."""
    try:
        yield
    except InputError:
        raise
    except _OF_DAMAGE as error:
        reason = str(error).split("\n")[0][:200]
        raise InputError(
            f"{path}: has unexpected content ({type(error).__name__}: {reason}); copy the files again, or give others"
        ) from error
