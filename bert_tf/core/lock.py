"""A lock on a folder, so that no two processes write into it at once."""

import fcntl
import os

from absl import logging

from bert_tf.core.errors import InputError

NAME = "lock"


class FolderLock:
    """A lock that one process at a time holds; the system releases it however that process ends.

    Object stores ("scheme://") have no locks, so there every process may go ahead.

    Args:
      folder: its file `lock` is what is locked.
      refusal: what to tell the user whose process comes second.
    """

    def __init__(self, folder: str, refusal: str):
        self._folder, self._refusal, self._file = folder, refusal, None

    @property
    def is_taken(self) -> bool:
        """Whether this process has locked the folder, or has tried to where the file system has no locks."""
        return self._file is not None

    def take(self) -> None:
        """Locks the folder, which must exist; only warns where the file system has no locks.

        Raises:
          InputError: another process holds the lock.
        """
        if "://" in self._folder:
            return
        self._file = os.open(os.path.join(self._folder, NAME), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise InputError(self._refusal) from error
        except OSError as error:  # not every network file system has locks
            logging.warning("%s cannot be locked (%s); let no two runs write there", self._folder, error.strerror)

    def release(self) -> None:
        """Lets another process lock the folder."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
