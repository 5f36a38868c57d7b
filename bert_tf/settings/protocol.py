"""Settings of the fine-tuning protocol: evaluation during training, training of the lower layers, and sweeps.

Paper: appendix A.3 (fine-tuning procedure).
"""

import dataclasses
import math
from collections.abc import Callable

from bert_tf.core.command_line import require, setting
from bert_tf.settings.model import ChosenCheckpoint
from bert_tf.settings.training import TrainingSettings

# The settings that a sweep varies, and the flags that list their values.
_GRID = {
    "learning_rate": "sweep_learning_rates",
    "train_batch_size": "sweep_batch_sizes",
    "num_train_epochs": "sweep_epochs",
}


@dataclasses.dataclass(frozen=True)
class ProtocolSettings(TrainingSettings, ChosenCheckpoint):
    """Evaluation during fine-tuning, training of the lower layers, and sweeps."""

    flag_group = "Training"

    eval_strategy: str = setting(
        "when to evaluate on the dev data during training: no: never; epoch: after each epoch; steps: every "
        "--eval_steps steps; epoch and steps also evaluate after the last step", "no", choices=("no", "epoch", "steps"),
        group="Evaluation", first=True, only_with="do_train and do_eval",
    )  # fmt: skip
    eval_steps: int = setting(
        "number of steps between two evaluations", 0, group="Evaluation", at_least=0, only_with="eval_strategy=steps"
    )
    early_stopping_patience: int = setting(
        "end training after this many consecutive evaluations without a better main metric, or an equal one with "
        "a lower loss; 0: never", 0, group="Evaluation", at_least=0, only_with="eval_strategy",
    )  # fmt: skip
    frozen_layers: int = setting(
        "do not train the embeddings and this many of the lowest layers; 0: train all weights; -1: train only the head",
        0, at_least=-1,
    )  # fmt: skip
    layer_learning_rate_decay: float = setting(
        "ratio of the learning rate of each layer to the rate of the layer above; the head and the pooler have the "
        "full rate, the top layer has this share of the full rate, and the embeddings have the lowest rate", 1.0,
        above=0, at_most=1, not_with=("frozen_layers=-1",),
    )  # fmt: skip
    transfer_layers: int | None = setting(
        "take only the embeddings and this many of the lowest layers from --init_checkpoint, which may have more "
        "layers than --bert_config_file; the other layers, the pooler and the head start from random weights; default: "
        "take all weights", None, at_least=0, only_with="init_checkpoint",
    )  # fmt: skip
    special_tokens: str = setting(
        "pretrained: the special tokens of a row have the embeddings from --init_checkpoint, as in BERT; new: the "
        "start, delimiter and extract tokens start from random embeddings, and a classifier reads the last layer at "
        "the extract token, as in GPT; new needs a model of one direction", "pretrained",
        choices=("pretrained", "new"), not_with=("frozen_layers=-1",),
    )  # fmt: skip
    lm_coefficient: float = setting(
        "add this multiple of the language model's loss on the same rows to the loss, as in GPT (0.5 there); needs a "
        "model of one direction", 0.0, at_least=0, not_with=("frozen_layers=-1",),
    )  # fmt: skip
    unlabeled_data_path: str = setting(
        "comma-separated files with more training texts, in the format of test data; only the teacher's outputs are "
        "learned for them", "", group="Distillation", per_worker=True, only_with="teacher",
    )  # fmt: skip
    sweep: bool = setting(
        "train one run for each combination of the values in the --sweep_ flags, each in its own folder below "
        "--output_dir, and keep only the checkpoints of the run that is best on the dev data", False, group="Sweep",
        only_with="do_train and do_eval",
    )  # fmt: skip
    sweep_learning_rates: str = setting(
        "learning rates, comma-separated", "5e-5,3e-5,2e-5", group="Sweep", only_with="sweep"
    )
    sweep_batch_sizes: str = setting("batch sizes, comma-separated", "16,32", group="Sweep", only_with="sweep")
    sweep_epochs: str = setting("numbers of epochs, comma-separated", "2,3,4", group="Sweep", only_with="sweep")
    sweep_restarts: int = setting(
        "number of runs per combination; each run has its own seed for data order and new weights", 1, group="Sweep",
        at_least=1, only_with="sweep",
    )  # fmt: skip
    sweep_checkpoints: bool = setting(
        "fine-tune each checkpoint of the pre-training run in --init_checkpoint, and plot the main metric on the dev "
        "data against the pre-training step, as in Figure 5 of the paper", False, group="Sweep", only_with="sweep",
    )  # fmt: skip
    sweep_transfer_layers: str = setting(
        "values of --transfer_layers, comma-separated; the report plots the main metric on the dev data against the "
        "number of layers, as in Figure 2 of the GPT paper", "", group="Sweep", only_with="sweep and init_checkpoint",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require(
            self.eval_strategy != "steps" or self.eval_steps > 0,
            "--eval_strategy=steps needs --eval_steps; give a number of steps",
        )
        for name, flag in _GRID.items() if self.sweep else ():
            value = getattr(self, name)
            remedy = f"give --{flag}={value} or drop --sweep"
            require(value == getattr(type(self), name), f"--{name}={value} has no effect in a sweep; {remedy}")
        _ = self.grid, self.transferred

    @property
    def training_facts(self) -> dict:
        """The values of the flags in this class that affect the weights."""
        names = ("frozen_layers", "layer_learning_rate_decay", "transfer_layers", "special_tokens", "lm_coefficient")
        return {name: getattr(self, name) for name in names} | self.distillation_facts

    @property
    def grid(self) -> dict[str, tuple]:
        """Maps the name of each setting that a sweep varies to the values of the setting."""
        kinds = {"train_batch_size": int}
        return {name: _numbers(self, flag, kinds.get(name, float)) for name, flag in _GRID.items()}

    @property
    def transferred(self) -> tuple[int | None, ...]:
        """The values of `transfer_layers` in a sweep; (None,) if the sweep does not vary this setting."""
        return _numbers(self, "sweep_transfer_layers", int, above=-1) if self.sweep_transfer_layers else (None,)


def _numbers(settings: ProtocolSettings, name: str, kind: Callable[[str], float], above: int = 0) -> tuple:
    """Returns the numbers that a flag lists, separated by commas."""
    text = getattr(settings, name)
    numbers = []
    for word in text.split(","):
        try:
            number = kind(word)
        except ValueError:
            number = math.nan
        require(
            above < number < math.inf,
            f"--{name}={text}: {word.strip()!r} is not a {'whole ' if kind is int else ''}number above {above}; give "
            "numbers separated by commas",
        )
        numbers.append(number)
    return tuple(dict.fromkeys(numbers))
