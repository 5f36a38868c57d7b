"""The manifest beside a set of shards: with which settings they were made, and what is in them."""

import dataclasses
import json
import re

import tensorflow as tf

from tfrecords.errors import InputError


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of a set: its name without the folder, number of examples, SHA-256 of its bytes."""

    name: str
    examples: int
    sha256: str


def manifest_path(first_output: str) -> str:
    """Where the manifest of a set stands: the first shard's path, its shard number cut off."""
    return re.sub(r"-\d{5}-of-\d{5}$", "", first_output) + ".manifest.json"


def to_json(settings: dict, shards: list[Shard], **facts) -> str:
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
