"""Identifies a job that writes a set of files, and keeps its work folder, so that a rerun resumes the job.

While the set is being made, the folder `NAME.work/` exists beside the shards. Once the set is complete, the file
`NAME.manifest.json` exists instead. Both record the settings, the corpus, and other facts on which the bytes depend.
A rerun with other facts is refused.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.core import identity, lock, storage
from bert_tf.core.errors import InputError
from bert_tf.jobs import shard_names
from bert_tf.jobs.runner import Runner
from tfrecords import manifest

_PLAN = "plan.json"
# Settings that do not affect the bytes of the output, and settings that name files. Files are compared by content.
_IMMATERIAL = frozenset({
    "input_file", "output_file", "num_workers", "runner", "spark_master", "verify", "init_checkpoint",
    "bert_config_file", "vocab_file", "ignore_checkpoint_tokenizer",
})  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Counts:
    """Base class of dataclasses that contain counts; the counts of several parts can be added."""

    def __add__(self, other: "Counts") -> "Counts":
        """Returns an object with the sums of both objects' counts."""
        mine, theirs = vars(self), vars(other)
        return type(self)(**{name: mine[name] + theirs[name] for name in mine})


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """The task to write a shard."""

    index: int  # index of the shard
    # `path`, `name`: the output path, and the shard's name in the manifest
    path: str
    name: str
    result_path: str  # the file that marks the shard as finished and contains its manifest entry
    finished: manifest.Shard | None  # the shard of an earlier run that completed the set; None if the shard is missing

    def read(self) -> manifest.Shard | None:
        """Returns the shard if it is finished; None if it is unfinished, was deleted or has another size."""
        if self.finished or not tf.io.gfile.exists(self.result_path) or not tf.io.gfile.exists(self.path):
            return self.finished
        with tf.io.gfile.GFile(self.result_path) as file:
            shard = manifest.Shard(**json.load(file))
        return shard if tf.io.gfile.stat(self.path).length == shard.bytes else None


class Job:
    """A job that writes a set of shards.
    `recipe`: a number that changes whenever the program begins to make other bytes from the same settings.
    `corpus`: the files of the corpus, as `corpus_entries` returns them.
    `facts`: SHA-256 of each input on which the bytes depend: `vocab_sha256` for a vocabulary, `weights_sha256` for
      weights.
    `manifest_path`: path of the finished set's manifest.
    `folder`: path of the unfinished set's work folder.
    `identity`: everything on which the bytes of the set depend, as a dict that can be written as JSON."""

    def __init__(self, recipe: int, settings, outputs: Sequence[str], corpus: list[dict], facts: Mapping[str, str]):
        self.settings = settings
        self.outputs = outputs
        self.manifest_path = manifest.manifest_path(outputs[0])
        self.folder = manifest.work_folder(self.manifest_path)
        self.identity = {
            "recipe": recipe,
            "settings": dataclasses.asdict(settings),
            **facts,
            "corpus": corpus,
            "outputs": shard_names.relative_names(outputs),
        }
        self._lock = lock.FolderLock(
            self.folder, f"{self.folder}: another run is writing this set; wait for it, or stop it"
        )

    @property
    def id(self) -> str:
        return identity.id_of(self.identity)

    def finished_shards(self) -> list[manifest.Shard | None]:
        """Returns for each output the shard if an earlier run finished the set and the file is whole, else None."""
        entries = manifest.read_manifest(self.manifest_path)
        if entries is None:
            self._refuse_unknown_outputs()
            return [None] * len(self.outputs)
        shards = manifest.shards_of(entries)
        self._require_same(
            f"{self.manifest_path}: this set was made with other settings",
            {**entries, "outputs": [shard.name for shard in shards]},
            "give another --output_file, or delete the set and its manifest",
        )
        return [
            shard if tf.io.gfile.exists(path) and tf.io.gfile.stat(path).length == shard.bytes else None
            for shard, path in zip(shards, self.outputs, strict=True)
        ]

    def _refuse_unknown_outputs(self) -> None:
        if tf.io.gfile.exists(f"{self.folder}/{_PLAN}"):
            return  # the outputs belong to an unfinished run, whose plan `open` compares
        for path in self.outputs:
            if tf.io.gfile.exists(path):
                raise InputError(
                    f"--output_file: {path} exists and has no manifest; give another name, or move the file"
                )

    def run(
        self,
        make: Callable[[Sequence[manifest.Shard | None]], list[manifest.Shard]],
        check: Callable[[], None] = lambda: None,
    ) -> list[manifest.Shard]:
        """Runs the job to its end. A finished job is left unchanged, and an unfinished job is resumed.
        `make`: function that takes the result of `finished_shards`, makes the missing shards and the manifest, and
          returns all shards.
        `check`: function that refuses invalid input before anything is written."""
        if all(finished := self.finished_shards()):
            self.clear()
            logging.info("%s: all shards already exist", self.manifest_path)
            return finished
        check()
        try:
            self.open()
            try:
                # Read the state again, because another run may have changed it before this run took the lock.
                shards = make(self.finished_shards())
            except InputError:  # the work folder is useless, because the input or the flags must change
                self.close()
                raise
            self.close()
            return shards
        finally:
            self.release()

    def shard_tasks(self, finished: Sequence[manifest.Shard | None]) -> list[ShardTask]:
        """Returns the task of each shard; `finished` is the result of `finished_shards`."""
        tf.io.gfile.makedirs(f"{self.folder}/shards")
        return [
            ShardTask(index, path, name, f"{self.folder}/shards/{index:05d}.json", shard)
            for index, (path, name, shard) in enumerate(
                zip(self.outputs, self.identity["outputs"], finished, strict=True)
            )
        ]

    def complete(
        self,
        shards: Sequence[manifest.Shard],
        finished: Sequence[manifest.Shard | None],
        summary: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Writes the manifest. If only missing shards were made again, the existing manifest stays as it is.
        `finished`: the result of `finished_shards`.
        `summary`: function that returns further entries of the manifest."""
        if any(finished):
            logging.info("wrote the missing shards again: %d", finished.count(None))
            return
        entries = {key: value for key, value in self.identity.items() if key not in ("settings", "outputs")}
        manifest.write(self.manifest_path, self.identity["settings"], shards, **entries, **summary())

    def open(self) -> None:
        """Creates the work folder, or resumes the work folder of an interrupted run."""
        tf.io.gfile.makedirs(self.folder)
        path = f"{self.folder}/{_PLAN}"
        if strange := self._strange_names():
            raise InputError(
                f"{self.folder}: contains {strange[0]} and no plan of a run, but the run needs this folder; move the "
                "folder away, or give another --output_file"
            )
        self._lock.take()
        if not tf.io.gfile.exists(path):
            storage.write_json(path, self.identity)
        else:
            with tf.io.gfile.GFile(path) as file:
                plan = json.load(file)
            self._require_same(
                f"{self.folder}: belongs to an unfinished run with other settings", plan,
                "finish that run with its own command, or delete the folder, or give another --output_file",
            )  # fmt: skip
            logging.info("resuming the unfinished run in %s", self.folder)
        self._remove_leftovers()

    def close(self) -> None:
        """Removes a finished run's work folder. Subfolders are removed first, so they never exist without the plan."""
        for name in storage.list_folder(self.folder):
            path = os.path.join(self.folder, name.rstrip("/"))
            if tf.io.gfile.isdir(path):
                storage.remove_tree(path)
        storage.remove_tree(self.folder)
        self.release()

    def clear(self) -> None:
        """Removes the remaining files of a run that was killed after it wrote the manifest."""
        if tf.io.gfile.exists(self.folder) and not self._strange_names():
            self._lock.take()
            self.close()
        self._remove_leftovers()

    def _strange_names(self) -> list[str]:
        """Returns the names of files in the work folder if the folder does not belong to a run."""
        if tf.io.gfile.exists(f"{self.folder}/{_PLAN}"):
            return []
        names = storage.list_folder(self.folder)
        return [name for name in names if name != lock.NAME and storage.TEMPORARY not in name]

    def release(self) -> None:
        """Releases the lock on the work folder."""
        self._lock.release()

    def _remove_leftovers(self) -> None:
        """Removes a killed run's temporary files beside the outputs. Other temporary files are in the work folder."""
        ours = {*self.outputs, self.manifest_path}
        for folder in filter(tf.io.gfile.isdir, {os.path.dirname(path) or "." for path in ours}):
            # List the folder instead of globbing: a name may contain glob characters.
            for name in storage.list_folder(folder):
                whole, temporary, _ = name.rpartition(storage.TEMPORARY)
                if temporary and ours & {whole, os.path.join(folder, whole)}:
                    tf.io.gfile.remove(os.path.join(folder, name))

    def _require_same(self, what: str, other: Mapping, remedy: str) -> None:
        """Refuses another run's identity if it differs from this job's."""
        identity.require_same(what, *(_compared(each, self.identity) for each in (other, self.identity)), remedy)


def _compared(entries: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Returns the entries of an identity that two runs must share; the names of the corpus's files may differ."""
    settings = {f"--{flag}": value for flag, value in entries.get("settings", {}).items() if flag not in _IMMATERIAL}
    contents = [f"{file['bytes']:,} bytes, {file['fingerprint']}" for file in entries.get("corpus", [])]
    return {key: entries.get(key) for key in keys} | {"settings": settings, "corpus": contents}


def _hashed(path: str) -> tuple[str, str]:
    return path, storage.sha256(path)


def corpus_entries(files: Sequence[str], runner: Runner) -> list[dict]:
    """Returns name, size in bytes and fingerprint (SHA-256) of each file."""
    hashes = dict(runner.map(_hashed, dict.fromkeys(files)))
    return [
        {"name": os.path.basename(path), "bytes": tf.io.gfile.stat(path).length, "fingerprint": hashes[path]}
        for path in files
    ]
