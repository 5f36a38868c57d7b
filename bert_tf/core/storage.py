"""Writes files atomically, checks output paths, hashes files, and reads JSON.

A file gets its final name only when it is complete and on disk.
"""

import contextlib
import dataclasses
import errno
import glob
import hashlib
import json
import os
import shutil
import tempfile
import types
import typing
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.core import lock
from bert_tf.core.errors import InputError, check_regular, unreadable
from bert_tf.core.flag_parsing import is_utf8

# Part of the name of each unfinished file, by which the leftovers of a killed process are recognized.
TEMPORARY = ".tmp-"
_BLOCK_BYTES = 1 << 20


def _gfile():
    """Returns TensorFlow's file functions, which support object stores. TensorFlow is imported here and not at the top,
    because the import takes seconds."""
    import tensorflow as tf

    return tf.io.gfile


@contextlib.contextmanager
def atomic_path(path: str) -> Iterator[str]:
    """Yields a temporary path beside `path` and renames it to `path` if the block succeeds. Local files are flushed to
    disk before the rename, so that a power failure cannot leave an incomplete file under the final name. On an error,
    the temporary file is removed and `path` stays unchanged."""
    # The random part makes the file names of two processes different, even on different machines.
    temporary = f"{path}{TEMPORARY}{uuid.uuid4().hex[:12]}"
    try:
        yield temporary
        if "://" not in path:
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        _gfile().rename(temporary, path, overwrite=True)
    except OSError as error:  # such as a full disk, of which many libraries do not name the file
        if error.errno and not error.filename:
            error.filename = path
        raise
    finally:
        if _gfile().exists(temporary):
            _gfile().remove(temporary)


@contextlib.contextmanager
def local_path_of(path: str) -> Iterator[str]:
    """Yields a local path, for a library that writes only local files. Its file atomically becomes `path` if the block
    succeeds; creates the folder of `path`."""
    _gfile().makedirs(os.path.dirname(path) or ".")
    with atomic_path(path) as temporary:
        if "://" not in path:
            yield temporary
            return
        with tempfile.TemporaryDirectory() as folder:
            yield f"{folder}/file"
            _gfile().copy(f"{folder}/file", temporary)


class FolderTakenError(InputError):
    """Another process has meanwhile written a folder with this name."""


def remove_tree(path: str) -> None:
    """Deletes a folder if it exists. Of a symbolic link, only the link is deleted, and never the folder behind it."""
    if "://" in path:
        if _gfile().exists(path):
            _gfile().rmtree(path)
    elif os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)


@contextlib.contextmanager
def temporary_folder(path: str) -> Iterator[str]:
    """Yields a new folder beside `path`; removes it at the end unless `publish_folder` has renamed it. Also removes the
    folders of killed processes for the same `path`: a living process locks its folder."""
    start = path.rstrip("/") + TEMPORARY
    for left in glob.glob(f"{glob.escape(start)}*"):
        with lock.locked(left) as is_abandoned:
            if is_abandoned and os.path.isdir(left) and os.listdir(left):  # an empty folder may be locked in a moment
                shutil.rmtree(left, ignore_errors=True)
    temporary = start + uuid.uuid4().hex[:12]
    _gfile().makedirs(temporary)
    with lock.locked(temporary, wait=True):
        try:
            yield temporary
        finally:
            if _gfile().exists(temporary):
                remove_tree(temporary)


def publish_folder(temporary: str, path: str) -> None:
    """Flushes a temporary folder to disk and renames it to `path`, unless `path` is a folder with content.
    Raises FolderTakenError: `path` has content; both folders are kept."""
    path = path.rstrip("/")
    if "://" not in path:
        for folder, _, names in os.walk(temporary):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
    taken = FolderTakenError(f"{path}: another process has meanwhile written this folder; give a new folder")
    if "://" in path:  # renaming is not atomic here: a process that writes at the same moment goes unnoticed
        if _gfile().exists(path) and _gfile().listdir(path):
            raise taken
        _gfile().rename(temporary, path, overwrite=True)
        return
    try:
        os.rename(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise taken from error
        raise


def check_new_folder(path: str, flag: str) -> None:
    """Checks that an output folder is empty or does not exist, and that `temporary_folder` can write beside it."""
    if _gfile().exists(path) and (not _gfile().isdir(path) or _gfile().listdir(path)):
        raise InputError(f"--{flag}={path}: exists and is not an empty folder; give a new folder")
    if "://" not in path:  # the temporary folder will be beside `path`
        check_writable(os.path.dirname(os.path.abspath(path)), flag)


def check_outputs(outputs: Sequence[str], read: Sequence[str], flag: str = "output_file") -> None:
    """Checks that outputs can be written, and that they do not overwrite an input or another output."""
    taken = {_real_path(path): "is also an input" for path in read}
    for path in outputs:
        reason = "is a folder" if path.endswith("/") or _gfile().isdir(path) else taken.get(_real_path(path))
        if not reason and "://" not in path and os.path.lexists(path) and not os.path.isfile(path):
            reason = "is not a regular file, and writing would replace it"  # such as /dev/null
        if reason:
            raise InputError(f"--{flag}: {path} {reason}; give another name")
        taken[_real_path(path)] = "is given twice"
    for folder in {os.path.dirname(path) for path in outputs if "://" not in path}:
        check_writable(folder, flag)


def check_writable(folder: str, flag: str) -> None:
    """Checks that a local folder is writable or can be created."""
    if "://" in folder:
        return
    folder = os.path.abspath(folder)
    while not os.path.lexists(folder):  # the folder will be created
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise InputError(f"--{flag}: {folder} is not a folder; give a path in another folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(
            f"--{flag}: {folder} is not writable; give a path in another folder, or change its permissions"
        )


def _real_path(path: str) -> str:
    return path if "://" in path else os.path.realpath(path)


def list_folder(path: str) -> list[str]:
    """Returns the names in a folder; leaves out names that are not UTF-8, because TensorFlow cannot handle them."""
    if "://" in path:
        return _gfile().listdir(path)
    return [name for name in os.listdir(path) if is_utf8(name)]


def check_regular_files(folder: str) -> None:
    """Refuses a model's folder with a named pipe or a device in it, because reading such a file may never end."""
    folder = glob.escape(folder)
    for path in (*glob.glob(f"{folder}/*"), *glob.glob(f"{folder}/*/*")):
        check_regular(path)


def sha256(*paths: str) -> str:
    """Computes the SHA-256 of a file, or of several files one after another, in hexadecimal."""
    digest = hashlib.sha256()
    for path in paths:
        with _gfile().GFile(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def json_file(path: str, remedy: str, what: str = "is damaged") -> Iterator[Any]:
    """Yields the content of a JSON file. If the content makes the `with` block fail, the error becomes an InputError.
    `remedy`: advice in the message if the file has unexpected content."""
    with unreadable(path, what, remedy):
        with _gfile().GFile(path) as file:
            entries = json.load(file)
        yield entries


def of_entries(kind: type, entries: Mapping[str, Any]) -> Any:
    """Makes a dataclass from the entries of a JSON object. Entries of a wrong type raise a TypeError."""
    made = kind(**entries)
    for name, hint in typing.get_type_hints(kind).items():
        expected = typing.get_origin(hint) or hint
        value = getattr(made, name)
        if not isinstance(value, hint if expected is types.UnionType else expected):
            raise TypeError(f"{name} is {value!r}")
    return made


def write_text(path: str, text: str) -> None:
    """Writes a small text file atomically; creates its folder if necessary."""
    _gfile().makedirs(os.path.dirname(path) or ".")
    with atomic_path(path) as temporary, _gfile().GFile(temporary, "w") as file:
        file.write(text)


def write_json(path: str, value: Any) -> None:
    """Writes a dataclass or a JSON value as `write_text` does; other characters than ASCII stay readable."""
    value = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # In paths that are not UTF-8, Python has lone surrogates. Python's escapes for them are also those of JSON.
    write_text(path, text.encode("utf-8", "backslashreplace").decode())
