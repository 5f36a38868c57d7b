"""The exception for invalid input.

The exception is defined here, at the bottom of the import order, so that every package can raise it.
"""


class InputError(ValueError):
    """Invalid input from the user. The message states what is wrong, where, and how to fix it.

    Scripts print the message as one line and exit with code 1. Only with `--debug` do they print a traceback. Any
    function that reads what a user gave may raise this error; docstrings mention it only in the public Python API.
    """
