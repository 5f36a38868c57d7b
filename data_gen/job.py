"""What a run of the generator is a run of, and its folder: so that a rerun finishes it, or refuses.

Beside the shards stand `NAME.work/`, while the set is being made, and `NAME.manifest.json`, once it is whole.
Both say with which settings, vocabulary and corpus.
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

# Raised whenever the same settings give other records than before.
_RECIPE = 2
# What decides how the records are made and not what is in them; files are compared by what they hold.
_IMMATERIAL = {"input_file", "output_file", "vocab_file", "num_workers", "runner", "spark_master", "verify"}
_HASHED_AT_ONCE = 64 << 20


def output_paths(output_file: str) -> list[str]:
    """The files that `--output_file` names: a comma list, each part a path or PATH@N for N shards.

    Raises:
      InputError: it names none, or an impossible number of shards.
    """
    paths = []
    for part in filter(None, (part.strip() for part in output_file.split(","))):
        found = re.fullmatch(r"(.+)@(\d+)", part)
        if not found:
            paths.append(part)
            continue
        count = int(found[2])
        if not 1 <= count <= 99_999:
            raise InputError(f"--output_file={part}: the number of shards must lie between 1 and 99999")
        paths += [f"{found[1]}-{shard:05d}-of-{count:05d}" for shard in range(count)]
    if not paths:
        raise InputError("--output_file is empty; give the file to write")
    return paths


@dataclasses.dataclass(frozen=True)
class HashTask:
    """A range of a file to take the SHA-256 of."""

    path: str
    start: int


def plan_hashes(files: Sequence[str]) -> list[HashTask]:
    """Ranges that cover all files."""
    return [
        HashTask(path, start)
        for path in files
        for start in range(0, max(1, tf.io.gfile.stat(path).length), _HASHED_AT_ONCE)
    ]


def hash_range(task: HashTask) -> tuple[HashTask, str]:
    """SHA-256 of a range."""
    digest, left = hashlib.sha256(), _HASHED_AT_ONCE
    with tf.io.gfile.GFile(task.path, "rb") as file:
        file.seek(task.start)
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    return task, digest.hexdigest()


def corpus_entries(files: Sequence[str], hashes: Mapping[HashTask, str]) -> list[dict]:
    """Name, size and fingerprint (SHA-256 of the SHA-256 of its ranges) of each file."""
    parts: dict[str, str] = dict.fromkeys(files, "")
    for task in sorted(hashes, key=lambda task: task.start):
        parts[task.path] += hashes[task]
    entries = []
    for path in files:
        digest = hashlib.sha256(parts[path].encode()).hexdigest()
        entries.append({"name": os.path.basename(path), "bytes": tf.io.gfile.stat(path).length, "fingerprint": digest})
    return entries


class Job:
    """A set of shards to be made.

    Args:
      settings: the resolved settings.
      outputs: the shards.
      vocab_sha256: of the vocabulary's bytes.
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
            self.folder, f"{self.folder}: another run is at work on this set; wait for it, or stop it"
        )

    @property
    def id(self) -> str:
        """A short name for the identity."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]

    def finished_shards(self) -> list[manifest.Shard | None]:
        """For each output its shard, if an earlier run finished the set and the file is still there, else None.

        Raises:
          InputError: the set there was made otherwise, or nothing says how.
        """
        entries = manifest.read_manifest(self.manifest_path)
        if entries is None:
            self._refuse_unknown_outputs()
            return [None] * len(self.outputs)
        shards = manifest.shards_of(self.manifest_path, entries)
        if different := self._differences({**entries, "outputs": [shard.name for shard in shards]}):
            raise InputError(
                f"{self.manifest_path}: the set there was made with other settings ({different}); "
                "give another --output_file, or delete that set and its manifest"
            )
        return [
            shard if tf.io.gfile.exists(path) and tf.io.gfile.stat(path).length == shard.bytes else None
            for shard, path in zip(shards, self.outputs, strict=True)
        ]

    def _refuse_unknown_outputs(self) -> None:
        if tf.io.gfile.exists(f"{self.folder}/plan.json"):
            return  # an unfinished run's, whose plan is compared when it is opened
        for path in self.outputs:
            if tf.io.gfile.exists(path):
                raise InputError(
                    f"--output_file: {path} exists, and no manifest says how it was made; delete it, or give another "
                    "name"
                )

    def open(self) -> None:
        """Makes the folder, or takes it over from an earlier run that was stopped.

        Raises:
          InputError: the folder is of another run, or that run is still at work.
        """
        tf.io.gfile.makedirs(self.folder)
        self._lock.take()
        self._check_plan()
        self._remove_leftovers()

    def _check_plan(self) -> None:
        path = f"{self.folder}/plan.json"
        if not tf.io.gfile.exists(path):
            # what stands here without a plan is of a run that was killed while it removed its folder
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
            logging.info("going on with the unfinished run in %s", self.folder)

    def close(self) -> None:
        """Removes the folder of a run that is over."""
        tf.io.gfile.rmtree(self.folder)
        self.release()

    def clear(self) -> None:
        """Removes what a run left that was killed after its manifest was written.

        Raises:
          InputError: that run is still at work.
        """
        if tf.io.gfile.exists(self.folder):
            self._lock.take()
            self.close()
        self._remove_leftovers()

    def release(self) -> None:
        """Lets another run take the folder over."""
        self._lock.release()

    def _empty_folder(self) -> None:
        for name in tf.io.gfile.listdir(self.folder):
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
            # a listing, as a name may hold what a glob takes for a pattern
            for name in tf.io.gfile.listdir(folder or "."):
                whole, temporary, _ = name.rpartition(writer.TEMPORARY)
                if temporary and (os.path.join(folder, whole) in ours or folder not in folders):
                    tf.io.gfile.remove(os.path.join(folder, name))

    def _differences(self, other: Mapping) -> str:
        """How this run differs from another one, in a few words; empty if it does not."""
        mine = self.identity
        if mine["recipe"] != other.get("recipe"):
            return "by another version of the generator"
        found = []
        settings = other.get("settings", {})
        for name, value in mine["settings"].items():
            if name not in _IMMATERIAL and settings.get(name) != value:
                found.append(f"--{name}={_shown(settings.get(name))} there, {_shown(value)} now")
        there, now = other.get("outputs", []), mine["outputs"]
        if len(there) != len(now):
            found.append(f"{len(there)} shards there, {len(now)} now")
        elif there != now:
            old, new = next(pair for pair in zip(there, now, strict=True) if pair[0] != pair[1])
            found.append(f"--output_file: {old} there, {new} now")
        if mine["vocab_sha256"] != other.get("vocab_sha256"):
            found.append("another vocabulary")
        return "; ".join(found + _corpus_differences(other.get("corpus", []), mine["corpus"]))


def _shown(value) -> str:
    """A setting as one would write the flag."""
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _names(outputs: Sequence[str]) -> list[str]:
    """What the shards are called in the manifest, which stands beside the first one."""
    folder = os.path.dirname(outputs[0])
    for path in outputs:
        if "://" in path and os.path.dirname(path) != folder:
            raise InputError(f"--output_file: {path} is not in {folder}; give shards that stand in one folder")
    return [os.path.relpath(path, folder or ".") for path in outputs]


def _corpus_differences(there: Sequence[Mapping], now: Sequence[Mapping]) -> list[str]:
    if len(there) != len(now):
        return [f"a corpus of {len(there)} file(s) there, of {len(now)} now"]
    return [
        f"another corpus: {old['name']} of {old['bytes']} bytes there, {new['name']} of {new['bytes']} bytes now"
        for old, new in zip(there, now, strict=True)
        if (old["bytes"], old["fingerprint"]) != (new["bytes"], new["fingerprint"])
    ]
