"""Locks on folders, which tell a process whether another process still writes into a folder."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from absl import logging

from bert_tf.core.errors import InputError

NAME = "lock"


@contextlib.contextmanager
def locked(folder: str, wait: bool = False) -> Iterator[bool]:
    """Locks a folder itself, without a file in it; yields False if another process has locked it, or without locks."""
    is_locked = False
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            held.callback(os.close, descriptor := os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC))
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            is_locked = True
        yield is_locked


class FolderLock:
    """A lock that only one process can hold. The operating system releases the lock when the process ends. Object
    stores ("scheme://") do not have locks, so every process may write there.
    `folder`: the folder; the lock is on its file `lock`.
    `refusal`: the error message if another process holds the lock."""

    def __init__(self, folder: str, refusal: str):
        self._folder, self._refusal, self._file = folder, refusal, None

    @property
    def is_taken(self) -> bool:
        """Whether this process has locked the folder, or has tried to lock it on a file system without locks."""
        return self._file is not None

    def take(self) -> None:
        """Locks the folder, which must exist. On a file system without locks, the method only logs a warning."""
        if "://" in self._folder:
            return
        self._file = os.open(os.path.join(self._folder, NAME), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise InputError(self._refusal) from error
        except OSError as error:  # not every network file system has locks
            logging.warning(
                "%s cannot be locked (%s); make sure that only one run writes there", self._folder, error.strerror
            )

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
