"""Settings of scripts that run a model over files of text as a job in parts: every field is a flag."""

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import ClassVar

from bert_tf.core.command_line import require, setting
from bert_tf.core.flag_parsing import absolute_paths

_MAX_WORKERS = 4096
# The formats that the ends of file names mean, also some that nothing here writes.
_EXTENSIONS = {
    "jsonl": "jsonl", "json": "jsonl", "npz": "npz", "tfrecord": "tfrecord", "tfrecords": "tfrecord",
    "parquet": "parquet", "csv": "csv", "tsv": "tsv", "npy": "npy", "h5": "h5", "gz": "gz", "bz2": "bz2", "xz": "xz",
    "zip": "zip",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class JobSettings:
    """Where a job runs.

    Attributes:
      path_flags: the flags that name files, for `with_absolute_paths`.
    """

    flag_group = "Devices"

    path_flags: ClassVar[tuple[str, ...]] = (
        "input_file", "output_file", "bert_config_file", "vocab_file", "init_checkpoint",
    )  # fmt: skip

    num_gpus: int = setting("0: compute on the processor's cores; 1: on the first GPU", 0, first=True)
    num_workers: int | None = setting(
        "number of worker processes; default: one per core; --runner=spark: maximum on a standalone cluster",
        None,
        first=True,
    )
    runner: str = setting("local: this machine's cores; spark: a Spark cluster", "local", choices=("local", "spark"))
    spark_master: str = setting("--runner=spark: URL of the master; empty: the master given to spark-submit", "")

    def check_devices(self) -> None:
        """Refuses flags of devices that contradict each other.

        Raises:
          InputError: names them.
        """
        require(self.num_gpus in (0, 1), f"--num_gpus={self.num_gpus}: must be 0 or 1")
        require(
            not self.num_gpus or (self.runner == "local" and self.num_workers in (None, 1)),
            "--num_gpus=1 computes in one process; drop --runner=spark and --num_workers",
        )
        require(
            self.num_workers is None or 1 <= self.num_workers <= _MAX_WORKERS,
            f"--num_workers={self.num_workers}: must lie between 1 and {_MAX_WORKERS}",
        )
        require(
            not self.spark_master or self.runner == "spark", f"--spark_master={self.spark_master} needs --runner=spark"
        )

    def with_absolute_paths(self) -> "JobSettings":
        """Returns the same settings for processes in other working directories."""
        return dataclasses.replace(self, **{name: absolute_paths(getattr(self, name)) for name in self.path_flags})


def format_of_output(output_file: str, given: str | None, formats: Sequence[str]) -> str:
    """Returns the format that the output is written in: what was given, or what the names of the files say.

    Args:
      output_file: value of `--output_file`.
      given: value of `--output_format`; None if it was left out.
      formats: those that can be written; names that say nothing mean the first.

    Raises:
      InputError: a name contradicts the format, or another name.
    """
    for path in map(str.strip, output_file.split(",")):
        extension = os.path.splitext(re.sub("@[0-9]+$", "", path))[1].lower().removeprefix(".")
        if named := _EXTENSIONS.get(extension):
            known = ", .".join(formats)
            require(named in formats, f"--output_file={path}: .{extension} is not written; name it .{known}")
            require(
                given in (None, named),
                f"--output_file={path}: .{extension} contradicts the format {given}; rename the file, or give another "
                "--output_format",
            )
            given = named
    return given or formats[0]
