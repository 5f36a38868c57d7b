import errno
import logging
import os
import subprocess
import sys

import pytest

from bert_tf.core import lock
from tests.kit import refused


def test_one_at_a_time_until_it_is_released(tmp_path):
    first, second = (lock.FolderLock(str(tmp_path), "wait for the other run") for _ in range(2))
    first.take()
    refused("^wait for the other run$", second.take)
    assert first.is_taken and not second.is_taken
    first.release()
    first.release()
    second.take()
    assert not first.is_taken and second.is_taken


@pytest.mark.core
def test_a_process_that_is_killed_leaves_no_lock(tmp_path):
    program = (
        "import os, signal, sys\nfrom bert_tf.core import lock\n"
        "lock.FolderLock(sys.argv[1], '').take()\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment).returncode == -9
    assert (tmp_path / lock.NAME).exists()
    lock.FolderLock(str(tmp_path), "").take()


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, caplog):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    with caplog.at_level(logging.WARNING):
        lock.FolderLock(str(tmp_path), "").take()
    assert f"{tmp_path} cannot be locked (No locks available)" in caplog.text


def test_an_object_store_has_no_lock():
    store = lock.FolderLock("gs://bucket/run", "")
    store.take()
    assert not store.is_taken
