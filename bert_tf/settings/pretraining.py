"""Settings of `run_pretraining`: every field is a flag."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import require, setting
from bert_tf.settings.training import TrainingSettings


@dataclasses.dataclass(frozen=True)
class PretrainingSettings(TrainingSettings):
    """Settings of `run_pretraining`, with the names and defaults of google-research/bert."""

    flag_group = "Data"
    script: ClassVar[str] = "run_pretraining"
    reported: ClassVar[tuple[str, ...]] = ("input_file", "eval_input_file", "max_predictions_per_seq", "masked_lm_prob")

    input_file: str = setting(
        "TFRecords from create_pretraining_data: comma-separated paths and globs", per_worker=True
    )
    eval_input_file: str = setting(
        "held-out TFRecords for evaluation; empty: evaluate on --input_file, the training data", "", first=True,
        per_worker=True, only_with="do_eval",
    )  # fmt: skip
    vocab_file: str = setting(
        "vocabulary of the data; the script copies this file to --output_dir; empty: the file that the data's manifest "
        "names, or an identical file beside the data or --init_checkpoint; data made with --masking=dynamic needs a "
        "vocabulary", "",
        group="Model", per_worker=True,
    )  # fmt: skip
    fill_mask_file: str = setting(
        "file with one sentence per line; each evaluation fills in the [MASK] tokens of these sentences, and the masks "
        "of some rows of the data", "", group="Evaluation", per_worker=True, only_with="do_eval",
    )  # fmt: skip
    max_seq_length: int = setting("length of the data's rows, in tokens", 128, first=True, above=0)
    max_predictions_per_seq: int | None = setting(
        "maximum number of masked positions per row; default: from the manifest of data made with --masking=dynamic, "
        "else 20", None, first=True, above=0,
    )  # fmt: skip
    masked_lm_prob: float | None = setting(
        "share of tokens to mask in data made with --masking=dynamic; default: from the data's manifest", None, above=0,
        below=1,
    )  # fmt: skip
    pack_sequences: bool = setting(
        "put several examples into one row, which leaves hardly any padding; --train_batch_size still counts rows, so "
        "a batch has more examples; evaluation is not packed", False, group="Training",
    )  # fmt: skip
    use_next_sentence_label: bool = setting(
        "train on the next-sentence task if the data has sentence pairs", True, group="Training"
    )
    do_eval: bool = setting(
        "with --do_train: evaluate every checkpoint; otherwise: evaluate the latest checkpoint", False, group="Run",
        first=True,
    )  # fmt: skip
    num_train_steps: int = setting("step at which training ends", 100000, group="Training", first=True, above=0)
    num_warmup_steps: int = setting(
        "number of steps of linear warm-up", 10000, group="Training", first=True, at_least=0
    )
    num_schedule_steps: int | None = setting(
        "step at which the learning rate reaches 0; default: --num_train_steps", None, group="Training", above=0
    )
    max_eval_steps: int = setting("maximum number of evaluation steps", 100, group="Evaluation", first=True, above=0)

    def __post_init__(self):
        super().__post_init__()
        require(self.do_train or self.do_eval, "nothing to do: give --do_train, --do_eval or both")
        self._check_schedule()

    def _check_schedule(self) -> None:
        end = self.num_schedule_steps
        if end is None or not self.do_train:
            return
        require(
            end >= self.num_train_steps,
            f"--num_schedule_steps={end}: the learning rate would be 0 before training ends at "
            f"--num_train_steps={self.num_train_steps}; give at least --num_schedule_steps={self.num_train_steps}, or "
            "drop the flag",
        )
        require(
            end >= self.num_warmup_steps,
            f"--num_warmup_steps={self.num_warmup_steps}: the learning-rate schedule ends earlier, at step {end} "
            "(--num_schedule_steps; by default --num_train_steps), so the learning rate would never "
            f"reach its peak; give, for example, --num_warmup_steps={end // 10}",
        )
