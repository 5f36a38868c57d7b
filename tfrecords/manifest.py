"""The manifest of a set of shards: the settings that made the shards, and their sizes and checksums."""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

from bert_tf.core import storage
from bert_tf.core.errors import InputError

SUFFIX = ".manifest.json"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of a set of shards."""

    name: str  # path relative to the manifest's folder
    examples: int  # number of examples
    bytes: int  # size of the file in bytes
    sha256: str


def manifest_path(first_output: str) -> str:
    """Returns the path of a set's manifest: the first shard's path without the shard number, plus `SUFFIX`."""
    return re.sub(r"-\d{5}-of-\d{5}$", "", first_output) + SUFFIX


def work_folder(path: str) -> str:
    return path.removesuffix(SUFFIX) + ".work"


def write(path: str, settings: Mapping, shards: list[Shard], **facts) -> None:
    """Writes a manifest.
    `**facts`: additional entries, such as the size and SHA-256 of the vocabulary."""
    entries = {**facts, "settings": settings, "shards": [dataclasses.asdict(shard) for shard in shards]}
    storage.write_json(path, entries)


def read_manifest(path: str) -> dict | None:
    """Reads a manifest. Returns None if the file does not exist: records from other tools have no manifest."""
    if not tf.io.gfile.exists(path):
        return None
    with storage.json_file(path, "move it away, or make the data again", "not a manifest") as entries:
        if not isinstance(entries, dict):
            raise ValueError("not a JSON object")
        for shard in shards_of(entries):
            if os.path.isabs(shard.name) or os.path.normpath(shard.name).startswith(os.pardir):
                raise ValueError(f"the shard {shard.name!r} is in another folder")
        for name, kind in {"settings": dict, "vocab_size": int, "vocab_sha256": str, "added_tokens": list}.items():
            if name in entries and not isinstance(entries[name], kind):
                raise TypeError(f"{name} is {entries[name]!r}")
        return entries


def shards_of(entries: Mapping) -> list[Shard]:
    return [storage.of_entries(Shard, shard) for shard in entries["shards"]]


def find_manifests(paths: Iterable[str]) -> dict[str, dict]:
    """Maps shards to their manifests; leaves out shards without a manifest. Each manifest is read only once."""
    read = functools.cache(read_manifest)
    return {path: entries for path in paths if (entries := find_manifest(path, read))}


def find_manifest(path: str, read: Callable[[str], dict | None] = read_manifest) -> dict | None:
    """Returns the manifest of the set that a shard belongs to; None if there is no such manifest. If the user named the
    shards one by one, the manifest is named after the first shard. To find the manifest from another shard, this
    function searches the shard's folder for a manifest that lists the shard."""
    if entries := read(manifest_path(path)):
        return entries
    folder = os.path.dirname(path)
    for name in sorted(storage.list_folder(folder or ".")):
        if name.endswith(SUFFIX):
            try:
                entries = read(os.path.join(folder, name))
            except InputError:  # probably the manifest of another set
                continue
            if entries and _shard_entry(path, entries):
                return entries
    return None


def _shard_entry(path: str, entries: Mapping) -> Mapping | None:
    return next((shard for shard in entries.get("shards", ()) if shard["name"] == os.path.basename(path)), None)


def shard_names(entries: Mapping) -> list[str]:
    """Returns the shards' names, relative to the manifest's folder; [] without a manifest."""
    return [shard["name"] for shard in entries.get("shards", ())]


def examples_of(paths: Sequence[str]) -> list[int | None]:
    """Returns the number of examples in each shard; None if no manifest states the number."""
    manifests = find_manifests(paths)
    counts = [(_shard_entry(path, manifests.get(path, {})) or {}).get("examples") for path in paths]
    return [examples if isinstance(examples, int) else None for examples in counts]


def check_size(path: str, entries: Mapping) -> None:
    """Checks that a shard has the size in the manifest; does nothing if the manifest states no size."""
    expected = (_shard_entry(path, entries) or {}).get("bytes")
    if expected is not None and (size := tf.io.gfile.stat(path).length) != expected:
        raise InputError(
            f"{path}: has {size} bytes, but its manifest says {expected}; delete the file and repeat the command "
            "that wrote it"
        )
