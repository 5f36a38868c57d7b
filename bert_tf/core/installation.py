"""Checks that no other distribution has replaced a package of this project, such as `export` or `tfrecords`.

pip overwrites files with the same path without a warning.
"""

import importlib.metadata
import importlib.util
import os

import bert_tf
from bert_tf.core.errors import InputError

_PACKAGES = ("data_gen", "tfrecords", "export")
# The first line of each package's `__init__.py` contains this word.
_OURS = "bert_tf"


def check() -> None:
    """Refuses an environment in which another distribution has replaced one of the packages.

    Raises:
      InputError: a package was replaced; the message names the package and the distribution.
    """
    parent = os.path.dirname(os.path.dirname(os.path.abspath(bert_tf.__file__)))
    for name in _PACKAGES:
        path = os.path.join(parent, name, "__init__.py")
        found = importlib.util.find_spec(name)
        is_beside = found and found.origin and os.path.exists(path) and os.path.samefile(found.origin, path)
        if is_beside and _is_ours(path):
            continue
        where = found.origin if found and found.origin else "nowhere"
        raise InputError(
            f"the package {name} of bert_tf is replaced by another package ({where}{_others(name)}); install bert_tf "
            "into a separate environment"
        )


def _is_ours(path: str) -> bool:
    with open(path, encoding="utf-8") as file:
        return _OURS in file.readline()


def _others(name: str) -> str:
    """Returns the part of the message that lists other distributions with a package of this name."""
    names = {*importlib.metadata.packages_distributions().get(name, ())} - {"bert_tf", "bert-tf"}
    return f", of {', '.join(sorted(names))}" if names else ""
