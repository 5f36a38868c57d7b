"""The manifest beside a set of shards: with which settings they were made, and what is in them."""

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping

import tensorflow as tf

from tfrecords import reader, writer
from tfrecords.errors import InputError

_SUFFIX = ".manifest.json"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of a set: its path from the manifest's folder, number of examples, size, SHA-256 of its bytes."""

    name: str
    examples: int
    bytes: int
    sha256: str


def manifest_path(first_output: str) -> str:
    """Where the manifest of a set stands: the first shard's path, its shard number cut off."""
    return re.sub(r"-\d{5}-of-\d{5}$", "", first_output) + _SUFFIX


def work_folder(path: str) -> str:
    """Where a set is made whose manifest will stand at `path`."""
    return path.removesuffix(_SUFFIX) + ".work"


def to_json(settings: Mapping, shards: list[Shard], **facts) -> str:
    """The manifest's text.

    Args:
      settings: the resolved settings that made the shards.
      shards: every file of the set.
      **facts: further entries: the vocabulary's size and SHA-256, say.
    """
    entries = {**facts, "settings": settings, "shards": [dataclasses.asdict(shard) for shard in shards]}
    return json.dumps(entries, indent=2) + "\n"


def read_manifest(path: str) -> dict | None:
    """Reads a manifest; None where there is none (records of other tools carry none).

    Raises:
      InputError: the file is there but is not JSON.
    """
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        try:
            entries = json.load(file)
        except ValueError as error:
            raise InputError(f"{path}: not a manifest ({error}); delete it or make the data again") from error
    if not isinstance(entries, dict):
        raise InputError(f"{path}: not a manifest (no JSON object); delete it or make the data again")
    return entries


def shards_of(path: str, entries: Mapping) -> list[Shard]:
    """The shards that a manifest names.

    Raises:
      InputError: the manifest at `path` does not say what this version writes.
    """
    try:
        return [Shard(**shard) for shard in entries["shards"]]
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: made by another version ({error}); make the data again") from error


def find_manifest(path: str) -> dict | None:
    """The manifest of the set that a shard belongs to; None where there is none.

    Where the names of the shards were given one by one, it stands beside the first of them.

    Raises:
      InputError: the manifest that bears the shard's name cannot be read.
    """
    if entries := read_manifest(manifest_path(path)):
        return entries
    folder = os.path.dirname(path)
    for name in sorted(tf.io.gfile.listdir(folder or ".")):
        if name.endswith(_SUFFIX):
            try:
                entries = read_manifest(os.path.join(folder, name))
            except InputError:  # of another set, maybe
                continue
            if entries and _shard_entry(path, entries):
                return entries
    return None


def _shard_entry(path: str, entries: Mapping) -> Mapping | None:
    shards = entries.get("shards")
    found = [shard for shard in shards if isinstance(shard, dict)] if isinstance(shards, list) else []
    return next((shard for shard in found if shard.get("name") == os.path.basename(path)), None)


def examples_of(path: str) -> int | None:
    """How many examples a shard holds; None where no manifest says it.

    Raises:
      InputError: the manifest that bears the shard's name cannot be read.
    """
    entries = find_manifest(path)
    examples = (_shard_entry(path, entries) or {}).get("examples") if entries else None
    return examples if isinstance(examples, int) else None


def check_size(path: str, entries: Mapping) -> None:
    """Checks that a shard has the size that its manifest says, where that says one.

    Raises:
      InputError: it has not.
    """
    expected = (_shard_entry(path, entries) or {}).get("bytes")
    if expected is None:
        return
    size = tf.io.gfile.stat(path).length
    if size != expected:
        raise InputError(
            f"{path}: has {size} bytes, but its manifest says {expected}; delete it and make it again with the same "
            "command"
        )


def find_faults(path: str) -> Iterator[str]:
    """Checks every shard of a set against its manifest, reading all bytes.

    Yields:
      One line for each shard that is missing or is not what was written.

    Raises:
      InputError: there is no manifest, or none that can be read.
    """
    entries = read_manifest(path)
    if entries is None:
        if tf.io.gfile.exists(work_folder(path)):
            raise InputError(f"{path}: no such manifest: the set is unfinished; run the command that makes it again")
        raise InputError(f"{path}: no such manifest; check --output_file, or the set was made by something else")
    for shard in shards_of(path, entries):
        name = os.path.join(os.path.dirname(path), shard.name)
        if not tf.io.gfile.exists(name):
            yield f"{name}: missing; run the command that made it again"
        elif writer.sha256(name) != shard.sha256:
            damage = reader.find_damage([name]) or f"{name}: other records than were written"
            yield f"{damage} (the manifest says {shard.examples} examples, {shard.bytes} bytes)"
