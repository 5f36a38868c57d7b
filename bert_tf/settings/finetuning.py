"""Settings that all fine-tuning scripts share: every field is a flag."""

import dataclasses
from typing import ClassVar

from bert_tf.command_line import require, require_folder, require_positive, setting
from bert_tf.settings import protocol
from bert_tf.settings.device import IGNORE_TOKENIZER


@dataclasses.dataclass(frozen=True)
class FineTuningSettings(protocol.ProtocolSettings):
    """Settings that all fine-tuning scripts share; names and defaults of google-research/bert.

    Attributes:
      default_lower_case: `do_lower_case` where neither the user nor a checkpoint says it.
    """

    default_lower_case: ClassVar[bool] = True

    bert_config_file: str = setting(
        "JSON file with the shape of the model; empty: the file beside --init_checkpoint", ""
    )
    vocab_file: str = setting("vocabulary, one token a line; empty: the file beside --init_checkpoint", "")
    output_dir: str = setting("folder for checkpoints and results", alias="model_dir")
    init_checkpoint: str = setting(
        "pre-trained checkpoint of any format: prefix, folder, or hf://owner/model; empty: random weights", ""
    )
    do_lower_case: bool | None = setting(
        "lower-case and strip accents; must match the vocabulary; default: from the run's folder or --init_checkpoint, "
        "else true", None,
    )  # fmt: skip
    ignore_checkpoint_tokenizer: bool = setting(IGNORE_TOKENIZER, False)
    max_seq_length: int | None = setting(
        "tokens in a row, [CLS] and [SEP] included; default: as the run's folder says, else 128", None
    )
    allow_unfinished: bool = setting("evaluate and predict with a checkpoint of unfinished training", False)
    do_train: bool = setting("train on the training data", False)
    do_eval: bool = setting("evaluate on the dev data", False)
    do_predict: bool = setting("predict the test data", False)
    train_batch_size: int = setting("examples per step, over all devices", 32)
    eval_batch_size: int = setting("examples of full length per evaluation step, over all devices", 8)
    predict_batch_size: int = setting("examples of full length per prediction step, over all devices", 8)
    learning_rate: float = setting("peak learning rate", 5e-5)
    num_train_epochs: float = setting("number of epochs", 3.0)
    warmup_proportion: float = setting("share of the steps used for warm-up", 0.1)
    save_checkpoints_steps: int = setting("steps between checkpoints", 1000)
    iterations_per_loop: int = setting(
        "maximum steps between two returns to Python; a TPU and several workers handle SIGTERM and Ctrl-C only there; "
        "other devices run at most 50 steps at once",
        1000, alias="steps_per_loop",
    )  # fmt: skip
    reinitialize_head: bool = setting(
        "take only the encoder of an --init_checkpoint that was fine-tuned, and draw a new head", False
    )

    pack_sequences: bool = setting(
        "several examples share a row, so that there is hardly any padding; the loss and the predictions are the same "
        "without, only slower", True,
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require(
            self.do_train or self.do_eval or self.do_predict,
            "nothing to do: give --do_train, --do_eval, --do_predict or several of them",
        )
        require_folder("output_dir", self.output_dir)
        require_positive(
            self, "train_batch_size", "eval_batch_size", "predict_batch_size", "learning_rate",
            "num_train_epochs", "save_checkpoints_steps", "iterations_per_loop",
        )  # fmt: skip
        require(
            self.max_seq_length is None or self.max_seq_length >= 5,
            f"--max_seq_length={self.max_seq_length}: must be at least 5, for [CLS] a [SEP] b [SEP]",
        )
        require(self.init_checkpoint or not self.reinitialize_head, "--reinitialize_head needs an --init_checkpoint")
        require(
            0 <= self.warmup_proportion < 1,
            f"--warmup_proportion={self.warmup_proportion}: must be at least 0 and below 1",
        )
        protocol.check(self, self.do_train, self.do_eval)
