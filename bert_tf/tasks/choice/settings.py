"""Settings of `run_swag`: every field is a flag."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import setting
from bert_tf.settings.finetuning import FolderSettings


@dataclasses.dataclass(frozen=True)
class SwagSettings(FolderSettings):
    """Settings of `run_swag`."""

    flag_group = "Data"
    script: ClassVar[str] = "run_swag"
    reported: ClassVar[tuple[str, ...]] = ("data_dir",)

    data_dir: str = setting(
        "folder with the files train, dev (or val, validation) and test: .csv or .tsv with the columns of SWAG or of "
        "the Story Cloze Test, or .jsonl, .json or .parquet, where each row has these columns or context, choices and "
        "label; or RACE's folders of these names", "",
        first=True, per_worker=True,
    )  # fmt: skip
