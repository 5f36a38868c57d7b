import errno
import hashlib
import logging
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from bert_tf.core import lock, storage, vocabulary_file
from bert_tf.core.errors import InputError
from tests.kit import refused
from tfrecords import writer


def read(path, compression="") -> list[bytes]:
    return list(tf.data.TFRecordDataset(str(path), compression_type=compression).as_numpy_iterator())


@pytest.mark.parametrize("records", [[], [b""], [b"one", b"", b"three" * 70_000]])
def test_written_records_are_read_by_tensorflow(tmp_path, records):
    path = tmp_path / "data"
    writer.write_records(str(path), iter(records))
    assert read(path) == records
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_midway_leaves_the_old_file(tmp_path, error):
    (tmp_path / "a").write_bytes(b"old")

    def records():
        yield b"one"
        assert [storage.TEMPORARY in name for name in sorted(os.listdir(tmp_path))] == [False, True]
        raise error("midway")

    with pytest.raises(error, match="midway"):
        writer.write_records(str(tmp_path / "a"), records())
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.parametrize("packed", [False, True])
def test_framed_records_have_size_and_checksum(tmp_path, packed):
    records = [b"%d " % i * (i % 900 + 1) for i in range(3000)]
    writer.write_records(str(tmp_path / "framed"), records)
    framed = (tmp_path / "framed").read_bytes()
    whole = tmp_path / "new" / "whole"
    size, digest = writer.write_framed(str(whole), [framed[:1_000_000], framed[1_000_000:]], packed)
    assert read(whole, "GZIP" if packed else "") == records
    content = whole.read_bytes()
    assert (size, digest) == (len(content), hashlib.sha256(content).hexdigest())
    assert os.listdir(tmp_path / "new") == ["whole"]


@pytest.fixture
def full_disk():
    """Simulates a full disk: the kernel refuses to let files grow beyond a limit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, old)


def test_a_disk_that_takes_no_more_leaves_nothing(tmp_path, full_disk):
    """`test_command_line.py` tests the error's line."""
    noise = [os.urandom(50_000) for _ in range(9)]
    path = str(tmp_path / "out")
    for write in (
        lambda: writer.write_framed(path, noise),
        lambda: writer.write_framed(path, noise, gzip_compress=True),
        lambda: storage.write_text(path, "x" * 200_000),
        lambda: writer.write_records(path, noise),
    ):
        with pytest.raises(tf.errors.OpError, match=r"out\.tmp-.*File too large"):
            write()
        assert os.listdir(tmp_path) == []


def test_atomic_path_calls_fsync_before_rename(tmp_path, monkeypatch):
    calls = []
    fsync, rename = os.fsync, tf.io.gfile.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd)))
    monkeypatch.setattr(tf.io.gfile, "rename", lambda *a, **k: (calls.append("rename"), rename(*a, **k)))
    storage.write_text(str(tmp_path / "file"), "text")
    assert calls == ["fsync", "rename"]


def test_outputs_must_differ_from_inputs(tmp_path):
    os.symlink(tmp_path / "text", tmp_path / "link")
    (tmp_path / "text").write_text("x")
    (tmp_path / "folder").mkdir()
    new, read = str(tmp_path / "new"), [str(tmp_path / "text")]
    storage.check_outputs([new, f"{new}2"], read)
    for outputs, message in [
        ([new, str(tmp_path / "link")], "link is also an input"),
        ([new, f"{tmp_path}/folder/../new"], "new is given twice"),
        ([f"{tmp_path}/folder/../new", new], "new is given twice"),
        ([str(tmp_path / "folder")], "folder is a folder"),
        ([f"{new}/"], "is a folder"),
        (["/dev/null"], "null is not a regular file"),
        ([str(tmp_path / "text" / "more" / "new")], "text is not a folder; give a path in another folder"),
    ]:
        refused(f"--output_file: .*{message}", storage.check_outputs, outputs, read)


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(ZeroDivisionError), storage.temporary_folder(str(target)) as folder:
        pathlib.Path(folder, "half").touch()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    target.mkdir()  # an empty folder is accepted
    with storage.temporary_folder(f"{target}/") as folder:
        pathlib.Path(folder, "whole").touch()
        assert list(target.iterdir()) == []
        storage.publish_folder(folder, f"{target}/")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "whole"]


def test_folders_of_killed_writers_are_removed(tmp_path):
    """The operating system releases the locks of a killed process, so its folders have no lock."""
    kept = ["out[1].tmp-new", "other.tmp-0", "out1.tmp-0"]  # one that is not locked yet, and those of other paths
    for name in (*kept, "out[1].tmp-killed/variables"):
        (tmp_path / name).mkdir(parents=True)
    for name in (*kept[1:], "out[1].tmp-killed/variables"):
        (tmp_path / name / "part").touch()
    with storage.temporary_folder(str(tmp_path / "out[1]")) as living:
        pathlib.Path(living, "part").touch()
        with storage.temporary_folder(str(tmp_path / "out[1]")) as later:
            assert set(os.listdir(tmp_path)) == {*kept, os.path.basename(living), os.path.basename(later)}
            with lock.locked(living) as is_abandoned:
                assert not is_abandoned
    assert set(os.listdir(tmp_path)) == {*kept}
    with lock.locked(str(tmp_path / kept[0])) as is_locked, lock.locked("ram://none") as is_remote:
        assert is_locked and not is_remote


def test_of_two_writers_the_later_is_refused(tmp_path):
    target, message = str(tmp_path / "out"), "out: another process has meanwhile written this folder; give a new folder"
    with storage.temporary_folder(target) as earlier, storage.temporary_folder(target) as later:
        pathlib.Path(earlier, "earlier").touch()
        pathlib.Path(later, "later").touch()
        storage.publish_folder(earlier, target)
        refused(message, storage.publish_folder, later, target)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "earlier"]


def test_refuses_output_folder_that_is_not_empty(tmp_path):
    storage.check_new_folder(str(tmp_path), "output")
    storage.check_new_folder(str(tmp_path / "new"), "output")
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(InputError, match=f"--output={path}: exists and is not an empty folder; give a new folder"):
            storage.check_new_folder(str(path), "output")


def test_refuses_output_folder_that_is_not_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path))  # as on a read-only file system
    message = f"--output: {tmp_path} is not writable; give a path in another folder, or change its permissions"
    (tmp_path / "empty").mkdir()
    for path in (f"{tmp_path}/new", f"{tmp_path}/empty/", f"{tmp_path}/not/there"):
        refused(message, storage.check_new_folder, path, "output")
    storage.check_writable(f"{tmp_path}/empty", "output")
    storage.check_writable("gs://bucket/folder", "output")


@pytest.mark.parametrize("place", ["itself", "inside"])
def test_remove_tree_deletes_link_but_not_its_target(tmp_path, place):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    path = tmp_path / "saving"
    if place == "inside":
        path.mkdir()
    (path / "link" if place == "inside" else path).symlink_to(tmp_path / "kept")
    storage.remove_tree(str(path))
    assert not path.exists() and (tmp_path / "kept/file").exists()
    storage.remove_tree(str(path))  # it may be gone already


def test_remove_tree_deletes_in_object_stores(tmp_path):
    folder = f"ram://{tmp_path}/saving"
    storage.remove_tree(folder)  # an object store has no empty folders
    storage.write_text(f"{folder}/part", "x")
    storage.remove_tree(folder)
    assert not tf.io.gfile.exists(f"{folder}/part")


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


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ä"]


@pytest.mark.parametrize("text", ["{}\n", "{}", "{}\r\n"])
def test_line_ends_do_not_change_a_vocabulary(tmp_path, text):
    path = tmp_path / "vocab.txt"
    end = "\r\n" if "\r" in text else "\n"
    path.write_bytes(text.format(end.join(TOKENS)).encode())
    assert vocabulary_file.read_tokens(str(path)) == TOKENS
    canonical = "".join(f"{token}\n" for token in TOKENS).encode()
    assert vocabulary_file.tokens_sha256(TOKENS) == hashlib.sha256(canonical).hexdigest()


@pytest.mark.parametrize(
    "content, message",
    [
        (None, ": no such file; give a vocabulary, such as vocab.txt"),
        (b"\xef\xbb\xbf[PAD]\na\n", ": starts with a byte order mark (BOM); save the vocabulary as UTF-8 without BOM"),
        (b"[PAD]\n\xe4\n", ", line 2: not UTF-8; save the vocabulary as UTF-8"),
    ],
)
def test_unreadable_vocabulary_error_names_remedy(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    if content:
        path.write_bytes(content)
    refused(f"^{re.escape(f'{path}{message}')}$", vocabulary_file.read_tokens, str(path))
