"""Settings of `run_classifier`: every field is a flag."""

import dataclasses

from bert_tf.command_line import require, setting
from bert_tf.settings.finetuning import FineTuningSettings


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(FineTuningSettings):
    """Settings of `run_classifier`; names and defaults of google-research/bert."""

    data_dir: str = setting("folder of the task's files, such as train.tsv, dev.tsv and test.tsv")
    task_name: str = setting(
        "CoLA, SST-2, MRPC, QQP, STS-B, MNLI, QNLI, RTE, WNLI, AX (the diagnostic data, for a run of MNLI), XNLI, or "
        "tsv for your own files"
    )
    tsv_has_header: bool = setting("task tsv: the first line names the columns", True)
    tsv_text_a_column: str = setting("task tsv: column of the (first) text, by name or number from 0", "text")
    tsv_text_b_column: str = setting("task tsv: column of the second text; empty for none", "")
    tsv_label_column: str = setting("task tsv: column of the label, by name or number from 0", "label")
    tsv_labels: str = setting("task tsv: comma-separated labels; empty: the sorted labels of train.tsv", "")
    tsv_quoted: bool | None = setting(
        "task tsv: cells may stand in double quotes, which are removed; default: quotes are text, but a file whose "
        "texts all stand in quotes is refused", None,
    )  # fmt: skip
    tsv_regression: bool = setting("task tsv: the label is a number to learn", False)
    xnli_language: str = setting(
        "task XNLI: code of the language to train, evaluate and predict; several, separated by commas, or all", "zh"
    )
    joint_tasks: str = setting(
        "tasks of GLUE or XNLI to train together with --task_name, separated by commas; they share the encoder, and "
        "each has a head; evaluation, prediction and export are those of --task_name", "",
    )  # fmt: skip
    joint_data_dirs: str = setting("their folders, separated by commas, in the same order", "")

    def __post_init__(self):
        super().__post_init__()
        require(
            not (self.tsv_regression and self.tsv_labels),
            "--tsv_regression learns numbers and --tsv_labels names classes; drop one of them",
        )
        names, folders = self.joint_task_names, self.joint_folders
        require(
            len(names) == len(folders),
            f"--joint_tasks names {len(names)} tasks and --joint_data_dirs {len(folders)} folders; give one for each",
        )

    @property
    def joint_task_names(self) -> tuple[str, ...]:
        """Names of `joint_tasks`."""
        return _items(self.joint_tasks)

    @property
    def joint_folders(self) -> tuple[str, ...]:
        """Folders of `joint_data_dirs`."""
        return _items(self.joint_data_dirs)


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())
