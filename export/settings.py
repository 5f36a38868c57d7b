"""Settings of the export script: every field is a flag."""

import dataclasses
import math

from bert_tf.command_line import require, require_folder, require_positive, setting


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """Settings of `export_saved_model`."""

    checkpoint_dir: str = setting("folder that a fine-tuning script has trained into")
    export_dir: str = setting(
        "version to write, as models/mrpc/1; or the model's folder, as models/mrpc, which gets the next version"
    )
    allow_unfinished: bool = setting("export a checkpoint of unfinished training", False)
    task_name: str = setting("task that the run must have been trained on; empty: any", "", alias="task")
    use_checkpoint: str = setting(
        "export the checkpoint that was best on the dev data during training, or the last one; without --eval_strategy "
        "in training it is always the last", "best", choices=("best", "last"),
    )  # fmt: skip
    max_answer_length: int = setting("questions on a context: longest answer, in tokens", 30)
    null_score_diff_threshold: float | None = setting(
        "questions that may have no answer: there is none if its score is above the best answer's by more than this; "
        "default: what --tune_null_threshold of run_squad found, or 0", None,
    )  # fmt: skip

    def __post_init__(self):
        require_folder("export_dir", self.export_dir)
        require_positive(self, "max_answer_length")
        odds = self.null_score_diff_threshold
        require(odds is None or math.isfinite(odds), f"--null_score_diff_threshold={odds}: must be finite")
