"""Settings that pre-training and all fine-tuning scripts share: every field is a flag."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import require_folder, setting
from bert_tf.settings.device import DeviceSettings
from bert_tf.settings.model import ModelFiles


@dataclasses.dataclass(frozen=True)
class TrainingSettings(ModelFiles, DeviceSettings):
    """Settings of the model, the run's folder and the training loop. The names and defaults are those of
    google-research/bert."""

    flag_group = "Training"
    script: ClassVar[str] = ""
    reported: ClassVar[tuple[str, ...]] = ()  # flags that only this script has and that the report shows

    init_checkpoint: str = setting(
        "checkpoint to start from, in any supported format: prefix, folder, or hf://owner/model; empty: random weights",
        "", group="Model", first=True, per_worker=True,
    )  # fmt: skip
    output_dir: str = setting("folder for checkpoints and results", alias="model_dir", group="Run", per_worker=True)
    learning_rate: float = setting("peak learning rate", 5e-5, first=True, above=0)
    do_train: bool = setting("train on the training data", False, group="Run", first=True)
    train_batch_size: int = setting(
        "examples per step, over all devices; in pre-training, rows", 32, first=True, above=0
    )
    eval_batch_size: int = setting(
        "examples of full length per evaluation step, over all devices", 8, group="Evaluation", above=0
    )
    save_checkpoints_steps: int = setting("steps between checkpoints", 1000, group="Run", above=0)
    iterations_per_loop: int = setting(
        "maximum number of steps before control returns to Python; lowered to 50 without a TPU, and to a twentieth of "
        "all steps in a short run; on a TPU or with several workers, SIGTERM and Ctrl-C take effect only when control "
        "returns",
        1000, alias="steps_per_loop", group="Devices", above=0,
    )  # fmt: skip

    teacher: str = setting(
        "also learn the outputs of this model for the same task: the folder of a run, or a model in any format of "
        "--init_checkpoint; its size may differ, and in fine-tuning its vocabulary", "", group="Distillation",
        per_worker=True, only_with="do_train",
    )  # fmt: skip
    distill_weight: float = setting(
        "share of the teacher's outputs in the loss; the labels have the rest", 0.5, group="Distillation", at_least=0,
        at_most=1, only_with="teacher",
    )  # fmt: skip
    distill_temperature: float = setting(
        "number by which both models' logits are divided before their probabilities are compared", 1.0,
        group="Distillation", above=0, only_with="teacher",
    )  # fmt: skip

    @property
    def distills(self) -> bool:
        """Whether training learns the outputs of a teacher."""
        return bool(self.teacher) and self.distill_weight > 0

    @property
    def distillation_facts(self) -> dict:
        """The values of the flags of distillation that affect the weights; {} without a teacher."""
        names = ("distill_weight", "distill_temperature") if self.distills else ()
        return {name: getattr(self, name) for name in names}

    def __post_init__(self):
        super().__post_init__()
        require_folder("output_dir", self.output_dir)
