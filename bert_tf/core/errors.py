"""The exception for invalid input.

The exception is defined here, at the bottom of the import order, so that every package can raise it.
"""

import contextlib
import os
from collections.abc import Iterator

# What code that reads a file raises if the content is not what the code expects. h5py raises RuntimeError.
_OF_DAMAGE = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RuntimeError, OSError)


class InputError(ValueError):
    """Invalid input from the user. The message states what is wrong, where, and how to fix it.

    Scripts print the message as one line and exit with code 1. Only with `--debug` do they print a traceback. Any
    function that reads what a user gave may raise this error; docstrings mention it only in the public Python API.
    """

    def _render_traceback_(self) -> list[str]:
        """Returns what a notebook shows: IPython calls this method instead of printing a traceback."""
        return [f"{type(self).__name__}: {self}"]


def check_regular(path: str) -> None:
    """Refuses a path that is neither a file nor a folder, because a read of a named pipe may never return."""
    if "://" not in path and os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(f"{path}: is not a regular file; replace it by one, or delete it")


@contextlib.contextmanager
def unreadable(
    path: str, what: str = "has unexpected content", remedy: str = "copy the files again, or give others"
) -> Iterator[None]:
    """Turns the errors of code that reads a user's files into an InputError that names them."""
    check_regular(path)
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # Protobuf's versions define DecodeError in different modules, so compare the class's name.
        if not isinstance(error, _OF_DAMAGE) and type(error).__name__ != "DecodeError":
            raise
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error).split("\n")[0][:200]
        raise InputError(f"{path}: {what} ({reason or type(error).__name__}); {remedy}") from error
