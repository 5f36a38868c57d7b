"""Settings of scripts that run a model on text files: every field is a flag."""

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import ClassVar

from bert_tf.core.command_line import require, setting
from bert_tf.jobs.settings import RunnerSettings
from bert_tf.jobs.shard_names import output_paths

# File name extensions and their formats, including formats that are not supported as output.
_EXTENSIONS = {
    "jsonl": "jsonl", "json": "jsonl", "npz": "npz", "tfrecord": "tfrecord", "tfrecords": "tfrecord",
    "parquet": "parquet", "csv": "csv", "tsv": "tsv", "npy": "npy", "h5": "h5", "gz": "gz", "bz2": "bz2", "xz": "xz",
    "zip": "zip",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class JobSettings(RunnerSettings):
    """Devices of a job that runs a model."""

    flag_group = "Devices"

    path_flags: ClassVar[tuple[str, ...]] = (*RunnerSettings.path_flags, "bert_config_file", "init_checkpoint")

    num_gpus: int = setting(
        "0: compute on the CPU's cores; 1: compute on the first GPU", 0, first=True, at_least=0, at_most=1
    )

    @property
    def devices(self) -> dict[str, int]:
        """Arguments of `runner.started`: the number of GPUs, and of tasks, which is the number of shards."""
        return {"num_gpus": self.num_gpus, "most_tasks": len(output_paths(self.output_file))}

    def __post_init__(self):
        super().__post_init__()
        require(
            not self.num_gpus or (self.runner == "local" and self.num_workers in (None, 1)),
            "--num_gpus=1 computes in one local process; drop --runner=spark and --num_workers",
        )


def format_of_output(output_file: str, output_format: str | None, formats: Sequence[str]) -> str:
    """Returns the output format: `output_format`, or the format that the file name extensions indicate.
    `output_file`: value of `--output_file`.
    `output_format`: value of `--output_format`; None if absent.
    `formats`: the supported formats; the first format is the default if no extension indicates a format."""
    for path in map(str.strip, output_file.split(",")):
        extension = os.path.splitext(re.sub("@[0-9]+$", "", path))[1].lower().removeprefix(".")
        if named := _EXTENSIONS.get(extension):
            names = ", .".join(formats)
            require(named in formats, f"--output_file={path}: .{extension} is not a supported format; use .{names}")
            require(
                output_format in (None, named),
                f"--output_file={path}: .{extension} contradicts the format {output_format}; rename the file, or give "
                "another --output_format",
            )
            output_format = named
    return output_format or formats[0]
