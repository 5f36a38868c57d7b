"""Settings of `run_classifier`: every field is a flag."""

import dataclasses

from bert_tf.command_line import require, setting
from bert_tf.settings.finetuning import FineTuningSettings


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(FineTuningSettings):
    """Settings of `run_classifier`; names and defaults of google-research/bert."""

    data_dir: str = setting("folder with train.tsv, dev.tsv and test.tsv")
    task_name: str = setting("MRPC, CoLA, SST-2, STS-B, or tsv for your own files")
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
    pooling: str | None = setting(
        "what the classifier reads: cls: the pooled [CLS], as in the paper; mean, max: over all tokens of the row, "
        "[CLS] and [SEP] included; default: as the run's folder says, else cls", None, choices=("cls", "mean", "max"),
    )  # fmt: skip
    long_text: str | None = setting(
        "what becomes of a text beyond --max_seq_length: truncate: its first tokens; head_tail: its first quarter and "
        "its last tokens; window: several rows, whose predictions are averaged; default: as the run's folder says, "
        "else truncate", None, choices=("truncate", "head_tail", "window"),
    )  # fmt: skip
    window_stride: int | None = setting(
        "long_text=window: tokens between the starts of two windows; 0: half a window; default: as the run's folder "
        "says, else 0", None,
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require(
            not (self.tsv_regression and self.tsv_labels),
            "--tsv_regression learns numbers and --tsv_labels names classes; drop one of them",
        )
        require(
            not self.window_stride or self.long_text in (None, "window"),
            f"--window_stride={self.window_stride} needs --long_text=window; give both, or drop the stride",
        )
        require((self.window_stride or 0) >= 0, f"--window_stride={self.window_stride}: must be at least 0")
