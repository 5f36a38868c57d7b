"""Settings of scripts that run a model over files of text as a job in parts: every field is a flag."""

import dataclasses
import os
from typing import ClassVar

from bert_tf.command_line import require, setting

_MAX_WORKERS = 4096
# Settings that do not affect the bytes of the output.
IMMATERIAL = frozenset({"input_file", "output_file", "num_workers", "runner", "spark_master"})


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
        return dataclasses.replace(self, **{name: _absolute(getattr(self, name)) for name in self.path_flags})


def _absolute(paths: str) -> str:
    parts = filter(None, (part.strip() for part in paths.split(",")))
    return ",".join(part if "://" in part else os.path.abspath(part) for part in parts)
