"""The settings that say where a job's tasks run; all jobs share these settings."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import Settings, setting
from bert_tf.core.flag_parsing import absolute_paths

_MAX_WORKERS = 4096


@dataclasses.dataclass(frozen=True)
class RunnerSettings(Settings):
    """The settings that say where a job's tasks run."""

    # the flags that name files; `with_absolute_paths` changes their values
    path_flags: ClassVar[tuple[str, ...]] = ("input_file", "output_file", "vocab_file")

    output_file: str = setting(
        "file to write: one path, a comma-separated list, or PATH@N for N shards; each shard is the task of one worker",
        group="Data",
    )
    num_workers: int | None = setting(
        "number of worker processes; default: one per core; with --runner=spark: maximum number of tasks that run at "
        "the same time on a standalone cluster", None,
        group="Devices", first=True, at_least=1, at_most=_MAX_WORKERS,
    )  # fmt: skip
    runner: str = setting(
        "local: this machine's cores; spark: a Spark cluster", "local", choices=("local", "spark"), group="Devices"
    )
    spark_master: str = setting(
        "URL of the master; if empty, the master given to spark-submit", "", group="Devices", only_with="runner=spark"
    )

    def with_absolute_paths(self) -> "RunnerSettings":
        """Returns the settings with absolute paths, for processes in other working directories."""
        return dataclasses.replace(self, **{name: absolute_paths(getattr(self, name)) for name in self.path_flags})
