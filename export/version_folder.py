"""The folder of an export: `NAME/VERSION/`, as TF Serving expects. NAME is a model's folder, and VERSION a number."""

import os
import re

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError

LITERT = "model.tflite"
LABELS = "labels.txt"  # in the folder `assets`
_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")


def is_version(export_dir: str) -> bool:
    """Returns whether a path ends in a version number; any other path is a model's folder, which contains versions."""
    return bool(_VERSION.fullmatch(os.path.basename(export_dir.rstrip("/"))))


def model_name(export_dir: str) -> str:
    path = os.path.abspath(export_dir) if "://" not in export_dir else export_dir.rstrip("/")
    return os.path.basename(os.path.dirname(path) if is_version(path) else path)


def check(export_dir: str, is_litert: bool) -> None:
    """Checks, before any long work, that an export can be written to `export_dir`. All versions of a model have one
    format, because a server loads the newest one, and no server reads .tflite files."""
    path = export_dir.rstrip("/")
    models_folder = os.path.dirname(path) if is_version(path) else path
    other = "saved_model.pb" if is_litert else LITERT
    for name in filter(_VERSION.fullmatch, _names(models_folder)):
        if tf.io.gfile.exists(os.path.join(models_folder, name, other)):
            raise InputError(
                f"--export_dir={export_dir}: {models_folder}/{name} has the other --format; give another folder"
            )
    if is_version(path):
        storage.check_new_folder(path, "export_dir")
        return
    if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
        raise InputError(f"--export_dir={path}: is a file; give a model's folder, or the folder of a new version")
    names = _names(path)
    if names and not any(_VERSION.fullmatch(name) or storage.TEMPORARY in name for name in names):
        raise InputError(
            f"--export_dir={path}: is not empty and contains no version of a model; give a new folder, or a folder "
            "whose subfolders are version numbers"
        )
    storage.check_writable(path, "export_dir")


def beside(export_dir: str) -> str:
    """Returns the path for `storage.temporary_folder` that puts the temporary folder next to the model's versions."""
    path = export_dir.rstrip("/")
    return os.path.join(os.path.dirname(path) if is_version(path) else path, "next")


def publish(temporary: str, export_dir: str) -> str:
    """Renames a complete export to `export_dir` or, if `export_dir` is a model's folder, to the model's next version.
    The next version is the largest version plus 1. If another export takes this number at the same time, this export
    takes the following number.
    Raises FolderTakenError: `export_dir` is a version, and another export has created the same version in the meantime.
    """
    path = export_dir.rstrip("/")
    if is_version(path):
        storage.publish_folder(temporary, path)
        return path
    while True:
        taken = [int(name) for name in _names(path) if _VERSION.fullmatch(name)]
        version = os.path.join(path, str(max(taken, default=0) + 1))
        try:
            storage.publish_folder(temporary, version)
        except storage.FolderTakenError:
            continue
        return version


def _names(path: str) -> list[str]:
    return [name.rstrip("/") for name in tf.io.gfile.listdir(path)] if tf.io.gfile.isdir(path) else []
