"""Settings that all fine-tuning scripts share: every field is a flag."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bert_tf.core.command_line import require, setting
from bert_tf.core.errors import InputError
from bert_tf.core.flag_parsing import items
from bert_tf.settings.device import BIAS_CORRECTION, DECAY_AFTER_WARMUP
from bert_tf.settings.model import Casing
from bert_tf.settings.protocol import ProtocolSettings

# The split with the training texts for which only the outputs of a teacher are learned.
UNLABELED = "unlabeled"
# For each split, the flag that names the split's files.
PATH_FLAGS = {"train": "train_data_path", "dev": "eval_data_path", "test": "test_data_path"}


@dataclasses.dataclass(frozen=True)
class FineTuningSettings(ProtocolSettings, Casing):
    """Settings that all fine-tuning scripts share, with the names and defaults of google-research/bert. One default
    differs: Adam's bias is corrected."""

    flag_group = "Training"

    path_flags: ClassVar[Mapping[str, str]] = PATH_FLAGS  # for each split, the flag that names the split's files

    # flags whose only effect is that an evaluation chooses a value on the dev data
    tuned_on_dev: ClassVar[tuple[str, ...]] = ()
    # folders of runs, or prefixes of checkpoints. Predictions use the mean of the members' logits.
    ensemble_members: ClassVar[tuple[str, ...]] = ()

    # Value of `max_seq_length` if neither the flag nor the run's folder gives it.
    default_max_seq_length: ClassVar[int] = 128

    max_seq_length: int | None = setting(
        "maximum number of tokens in a row, [CLS] and [SEP] included; default: from the run in --output_dir, else "
        "from sentence-transformers' files (run_embeddings), else 128 (run_squad: 384), but at most the model's number "
        "of positions", None, group="Model", first=True, at_least=5,
    )  # fmt: skip
    keep_checkpoint_max: int = setting(
        "number of the latest checkpoints to keep for resuming; 0: all; the weights of the best checkpoint on the dev "
        "data are always kept", 2, group="Run",
    )  # fmt: skip
    allow_unfinished: bool = setting(
        "allow evaluation and prediction with a checkpoint of a run that has not finished its training", False,
        group="Run",
    )  # fmt: skip
    do_eval: bool = setting("evaluate on the dev data", False, group="Run", first=True)
    do_predict: bool = setting("write predictions for the test data", False, group="Run", first=True)
    dev_share: float | None = setting(
        "share of the training data to hold out as the dev data if there is no dev file; the share is the same for all "
        "classes, and equal texts stay together; default: from the run in --output_dir, else none", None,
        group="Data", first=True, above=0, below=1,
    )  # fmt: skip
    dev_seed: int | None = setting(
        "seed for selecting the examples; separate from --random_seed, so that runs with different seeds have the same "
        "dev data; default: from the run in --output_dir, else 0", None, group="Data", only_with="dev_share",
    )  # fmt: skip
    predict_batch_size: int = setting(
        "examples of full length per prediction step, over all devices", 8, group="Evaluation", above=0
    )
    num_train_epochs: float = setting("number of epochs", 3.0, first=True, above=0)
    adam_bias_correction: bool = setting(
        f"{BIAS_CORRECTION}; without it, training on a few thousand examples fails more often", True
    )
    decay_after_warmup: bool = setting(DECAY_AFTER_WARMUP, True)
    warmup_proportion: float = setting("share of the steps used for warm-up", 0.1, at_least=0, below=1)
    reinitialize_head: bool = setting(
        "load only the encoder of a fine-tuned --init_checkpoint, and initialize the head randomly", False,
        group="Model",
    )  # fmt: skip
    bilstm_head: bool | None = setting(
        "put a randomly initialized BiLSTM between the encoder and the head, as in Table 5 of the paper", None,
        group="Model", new_run=False,
    )  # fmt: skip

    pack_sequences: bool = setting(
        "put several examples into one row, which leaves hardly any padding; faster, with the same loss and "
        "predictions", True,
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require(
            self.do_train or self.do_eval or self.do_predict,
            "nothing to do: give --do_train, --do_eval, --do_predict or several of them",
        )

    @property
    def divides_batches(self) -> bool:
        """Whether the halves of a batch may be computed at the same time; see `batch_parts`."""
        return True

    @property
    def data_paths(self) -> dict[str, tuple[str, ...]]:
        """The files that flags name, by split: the splits in `path_flags`, and the unlabeled data."""
        paths = {split: (path,) for split, flag in self.path_flags.items() if (path := getattr(self, flag))}
        return paths | {UNLABELED: items(self.unlabeled_data_path)} if self.unlabeled_data_path else paths

    def _require_data(self, *flags: str) -> None:
        """Refuses --do_train, --do_eval and --do_predict without data."""
        at = dict(zip(("do_train", "do_eval", "do_predict"), self.path_flags.values(), strict=True))
        for wanted, flag in at.items():
            held_out = self.dev_share is not None and getattr(self, at["do_train"]) if wanted == "do_eval" else ""
            paths = [getattr(self, name).strip() for name in (*flags, flag)] if getattr(self, wanted) else [True]
            remedy = ", or --dev_share and the training data" if wanted == "do_eval" else ""
            if not (held_out or any(paths)):
                needed = " or ".join(f"--{name}" for name in (flag, *flags))
                raise InputError(f"--{wanted} needs {needed}{remedy}")


@dataclasses.dataclass(frozen=True)
class FolderSettings(FineTuningSettings):
    """Settings of the scripts that read a folder with a file for each split. Each script describes its own folder."""

    flag_group = "Data"

    train_data_path: str = setting("training data, if it is not in --data_dir", "", first=True, per_worker=True)
    eval_data_path: str = setting("dev data, if it is not in --data_dir", "", first=True, per_worker=True)
    test_data_path: str = setting("test data, if it is not in --data_dir", "", first=True, per_worker=True)

    def __post_init__(self):
        super().__post_init__()
        self._check_data()

    def _check_data(self) -> None:
        self._require_data("data_dir")
