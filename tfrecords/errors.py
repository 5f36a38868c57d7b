"""The one exception for input that cannot be used.

It stands here, at the bottom of the import order, so that every package raises the same one.
"""


class InputError(ValueError):
    """Something a user gave cannot be used; the message says what, where and how to mend it.

    Scripts print the message as one line and exit with code 1; no traceback unless `--debug`.
    """
