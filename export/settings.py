"""Settings of the export script: every field is a flag."""

import dataclasses

from bert_tf.command_line import require_folder, setting


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

    dtype: str = setting(
        "precision of the weights and of the computation; probabilities are float32 in any case", "float32",
        choices=("float32", "bfloat16"),
    )  # fmt: skip

    def __post_init__(self):
        require_folder("export_dir", self.export_dir)
