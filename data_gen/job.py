"""The identity of a generator run and its work folder, so that a rerun resumes it or is refused.

`NAME.work/` exists beside the shards while the set is being made, `NAME.manifest.json` once it is complete.
Both record the settings, the vocabulary and the corpus.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import logging

from data_gen.settings import GeneratorSettings
from tfrecords import lock, manifest, writer
from tfrecords.errors import InputError

# Increment this number whenever the same settings produce different records.
_RECIPE = 2
# Settings that do not affect the contents of the records. Files are compared by content, not by name.
_IMMATERIAL = {"input_file", "output_file", "vocab_file", "num_workers", "runner", "spark_master", "verify"}
_HASHED_AT_ONCE = 64 << 20
# What a run writes into its work folder.
_WORK_NAMES = {lock.NAME, "plan.json", "tokens", "units", "shards"}


def output_paths(output_file: str) -> list[str]:
    """Expands `--output_file`: a comma-separated list of paths, or of PATH@N for N shards.

    Raises:
      InputError: the list is empty, or what follows an "@" is not a number of shards.
    """
    paths = []
    for part in filter(None, (part.strip() for part in output_file.split(","))):
        name, at, number = os.path.basename(part).rpartition("@")
        if not at:
            paths.append(part)
            continue
        if not name or not re.fullmatch(r"[0-9]{1,5}", number) or not int(number):
            raise InputError(
                f"--output_file={part}: give NAME@N, with a number of shards N between 1 and 99999, or a name without @"
            )
        path, count = part.removesuffix(f"@{number}"), int(number)
        paths += [f"{path}-{shard:05d}-of-{count:05d}" for shard in range(count)]
    if not paths:
        raise InputError("--output_file is empty; give the file to write")
    return paths


@dataclasses.dataclass(frozen=True)
class HashTask:
    """A range of a file whose SHA-256 is to be computed."""

    path: str
    start: int


def plan_hashes(files: Sequence[str]) -> list[HashTask]:
    """Splits all files into ranges."""
    return [
        HashTask(path, start)
        for path in files
        for start in range(0, max(1, tf.io.gfile.stat(path).length), _HASHED_AT_ONCE)
    ]


def hash_range(task: HashTask) -> tuple[HashTask, str]:
    """Computes the SHA-256 of a range, in hexadecimal."""
    digest, left = hashlib.sha256(), _HASHED_AT_ONCE
    with tf.io.gfile.GFile(task.path, "rb") as file:
        file.seek(task.start)
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    return task, digest.hexdigest()


def corpus_entries(files: Sequence[str], hashes: Mapping[HashTask, str]) -> list[dict]:
    """Returns name, size in bytes and fingerprint (SHA-256 over the SHA-256 of its ranges) of each file."""
    parts: dict[str, str] = dict.fromkeys(files, "")
    for task in sorted(hashes, key=lambda task: task.start):
        parts[task.path] += hashes[task]
    entries = []
    for path in files:
        digest = hashlib.sha256(parts[path].encode()).hexdigest()
        entries.append({"name": os.path.basename(path), "bytes": tf.io.gfile.stat(path).length, "fingerprint": digest})
    return entries


class Job:
    """A set of shards to generate.

    Args:
      settings: the resolved settings.
      outputs: paths of the shards.
      vocab_sha256: SHA-256 of the vocabulary's tokens.
      corpus: see `corpus_entries`.
    """

    def __init__(self, settings: GeneratorSettings, outputs: Sequence[str], vocab_sha256: str, corpus: list[dict]):
        self.settings = settings
        self.outputs = outputs
        self.manifest_path = manifest.manifest_path(outputs[0])
        self.folder = manifest.work_folder(self.manifest_path)
        self.identity = {
            "recipe": _RECIPE,
            "settings": dataclasses.asdict(settings),
            "vocab_sha256": vocab_sha256,
            "corpus": corpus,
            "outputs": _names(outputs),
        }
        self._lock = lock.FolderLock(
            self.folder, f"{self.folder}: another run is writing this set; wait for it, or stop it"
        )

    @property
    def id(self) -> str:
        """A short hash of the identity."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]

    def finished_shards(self) -> list[manifest.Shard | None]:
        """Returns one entry per output: its shard if an earlier run finished the set and the file exists, else None.

        Raises:
          InputError: the existing set has other settings, or no manifest.
        """
        entries = manifest.read_manifest(self.manifest_path)
        if entries is None:
            self._refuse_unknown_outputs()
            return [None] * len(self.outputs)
        shards = manifest.shards_of(self.manifest_path, entries)
        if different := self._differences({**entries, "outputs": [shard.name for shard in shards]}):
            raise InputError(
                f"{self.manifest_path}: this set was made with other settings ({different}); "
                "give another --output_file, or delete the set and its manifest"
            )
        return [
            shard if tf.io.gfile.exists(path) and tf.io.gfile.stat(path).length == shard.bytes else None
            for shard, path in zip(shards, self.outputs, strict=True)
        ]

    def _refuse_unknown_outputs(self) -> None:
        if tf.io.gfile.exists(f"{self.folder}/plan.json"):
            return  # the outputs of an unfinished run; `open` compares its plan
        for path in self.outputs:
            if tf.io.gfile.exists(path):
                raise InputError(f"--output_file: {path} exists and has no manifest; give another name, or move it")

    def open(self) -> None:
        """Creates the work folder, or resumes that of an interrupted run.

        Raises:
          InputError: the folder belongs to a run with other settings, or to a run that is still active.
        """
        tf.io.gfile.makedirs(self.folder)
        self._refuse_foreign_folder()
        self._lock.take()
        self._check_plan()
        self._remove_leftovers()

    def _check_plan(self) -> None:
        path = f"{self.folder}/plan.json"
        if not tf.io.gfile.exists(path):
            # A folder without a plan remains from a run that was killed while it removed the folder.
            self._empty_folder()
            writer.write_text(path, json.dumps(self.identity, indent=2) + "\n")
        else:
            with tf.io.gfile.GFile(path) as file:
                plan = json.load(file)
            if different := self._differences(plan):
                raise InputError(
                    f"{self.folder}: an unfinished run with other settings ({different}); "
                    "finish it with its own command, or delete the folder, or give another --output_file"
                )
            logging.info("resuming the unfinished run in %s", self.folder)

    def close(self) -> None:
        """Removes the work folder of a finished run."""
        tf.io.gfile.rmtree(self.folder)
        self.release()

    def clear(self) -> None:
        """Removes the leftovers of a run that was killed after it wrote the manifest.

        Raises:
          InputError: that run is still active.
        """
        if tf.io.gfile.exists(self.folder):
            self._lock.take()
            self.close()
        self._remove_leftovers()

    def release(self) -> None:
        """Releases the lock on the work folder."""
        self._lock.release()

    def _refuse_foreign_folder(self) -> None:
        for name in map(os.path.basename, (name.rstrip("/") for name in writer.list_folder(self.folder))):
            if name not in _WORK_NAMES and writer.TEMPORARY not in name:
                raise InputError(
                    f"{self.folder}: contains {name}, which is not of this program, but the run needs a folder of this "
                    "name for itself; move it away, or give another --output_file"
                )

    def _empty_folder(self) -> None:
        for name in writer.list_folder(self.folder):
            path = f"{self.folder}/{name.rstrip('/')}"
            if tf.io.gfile.isdir(path):
                tf.io.gfile.rmtree(path)
            elif name != lock.NAME:
                tf.io.gfile.remove(path)

    def _remove_leftovers(self) -> None:
        ours = {*self.outputs, self.manifest_path}
        folders = {os.path.dirname(path) for path in ours}
        for folder in (*folders, self.folder, *(f"{self.folder}/{name}" for name in ("tokens", "units", "shards"))):
            if not tf.io.gfile.isdir(folder or "."):
                continue
            # List the folder instead of globbing: a name may contain glob characters.
            for name in writer.list_folder(folder or "."):
                whole, temporary, _ = name.rpartition(writer.TEMPORARY)
                if temporary and (os.path.join(folder, whole) in ours or folder not in folders):
                    tf.io.gfile.remove(os.path.join(folder, name))

    def _differences(self, other: Mapping) -> str:
        """Describes how another run's identity differs from this one; empty if it does not."""
        mine = self.identity
        if mine["recipe"] != other.get("recipe"):
            return "another version of the generator"
        found = []
        settings = other.get("settings", {})
        for name, value in mine["settings"].items():
            if name not in _IMMATERIAL and settings.get(name) != value:
                found.append(f"--{name} was {_shown(settings.get(name))}, is now {_shown(value)}")
        there, now = other.get("outputs", []), mine["outputs"]
        if len(there) != len(now):
            found.append(f"there were {len(there)} shards, now {len(now)}")
        elif there != now:
            old, new = next(pair for pair in zip(there, now, strict=True) if pair[0] != pair[1])
            found.append(f"--output_file was {old}, is now {new}")
        if mine["vocab_sha256"] != other.get("vocab_sha256"):
            found.append("the vocabulary has changed")
        return "; ".join(found + _corpus_differences(other.get("corpus", []), mine["corpus"]))


def _shown(value) -> str:
    """Formats a setting as on the command line."""
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _names(outputs: Sequence[str]) -> list[str]:
    """Returns the shards' paths relative to the manifest, which is in the folder of the first shard."""
    folder = os.path.dirname(outputs[0])
    for path in outputs:
        if "://" in path and os.path.dirname(path) != folder:
            raise InputError(f"--output_file: {path} is not in {folder}; give shards in one folder")
    return [os.path.relpath(path, folder or ".") for path in outputs]


def _corpus_differences(there: Sequence[Mapping], now: Sequence[Mapping]) -> list[str]:
    if len(there) != len(now):
        return [f"the corpus had {len(there)} file(s), has now {len(now)}"]
    return [
        f"the corpus has changed: it had {old['name']} of {old['bytes']} bytes, "
        f"has now {new['name']} of {new['bytes']} bytes"
        for old, new in zip(there, now, strict=True)
        if (old["bytes"], old["fingerprint"]) != (new["bytes"], new["fingerprint"])
    ]
