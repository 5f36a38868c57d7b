"""Settings that pre-training and all fine-tuning scripts share: every field is a flag."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import require_folder, setting
from bert_tf.settings.device import DeviceSettings

# Help texts of flags that scripts that do not train also have.
LOWER_CASE = (
    "lower-case text; default: from the run, else from the files beside the vocabulary or the checkpoint; else true, "
    "or false if the vocabulary has tokens with capital letters"
)
STRIP_ACCENTS = "strip accents; default: from the same files, else the same as --do_lower_case"
IGNORE_TOKENIZER = "use --init_checkpoint even if it was trained with a different tokenizer"


@dataclasses.dataclass(frozen=True)
class TrainingSettings(DeviceSettings):
    """Settings of the model, the run's folder and the training loop.

    The names and defaults are those of google-research/bert.

    Attributes:
      reported: flags that only this script has and that the report shows.
    """

    flag_group = "Training"
    script: ClassVar[str] = ""
    reported: ClassVar[tuple[str, ...]] = ()

    bert_config_file: str = setting(
        "JSON file with the configuration of the model; empty: the file beside --init_checkpoint",
        "",
        group="Model",
        first=True,
    )
    output_dir: str = setting("folder for checkpoints and results", alias="model_dir", group="Run")
    ignore_checkpoint_tokenizer: bool = setting(IGNORE_TOKENIZER, False, group="Model")
    learning_rate: float = setting("peak learning rate", 5e-5, first=True, above=0)
    save_checkpoints_steps: int = setting("steps between checkpoints", 1000, group="Run", above=0)
    iterations_per_loop: int = setting(
        "maximum number of steps before control returns to Python; lowered to 50 without a TPU, and to a twentieth of "
        "all steps in a short run; on a TPU or with several workers, SIGTERM and Ctrl-C take effect only when control "
        "returns",
        1000, alias="steps_per_loop", group="Devices", above=0,
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require_folder("output_dir", self.output_dir)
