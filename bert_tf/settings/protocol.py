"""Settings of the fine-tuning protocol: evaluation during training, training of the lower layers, and sweeps.

Paper: appendix A.3 (fine-tuning procedure).
"""

import dataclasses
import math
from collections.abc import Callable

from bert_tf.core.command_line import require, setting
from bert_tf.settings.training import TrainingSettings, check_teacher

# The settings that a sweep varies, and the flags that list their values.
_GRID = {
    "learning_rate": "sweep_learning_rates",
    "train_batch_size": "sweep_batch_sizes",
    "num_train_epochs": "sweep_epochs",
}
# Flags that only sweeps use.
SWEEP_FLAGS = (*_GRID.values(), "sweep_restarts", "sweep_checkpoints", "sweep_transfer_layers")

# Flags that have no effect if the encoder is not trained.
TRAINS_ENCODER = ("layer_learning_rate_decay", "special_tokens", "lm_coefficient")


@dataclasses.dataclass(frozen=True)
class ProtocolSettings(TrainingSettings):
    """Evaluation during fine-tuning, training of the lower layers, and sweeps."""

    flag_group = "Training"

    eval_strategy: str = setting(
        "when to evaluate on the dev data during training: no: never; epoch: after each epoch; steps: every "
        "--eval_steps steps; epoch and steps also evaluate after the last step", "no", choices=("no", "epoch", "steps"),
        group="Evaluation", first=True,
    )  # fmt: skip
    eval_steps: int = setting(
        "with --eval_strategy=steps: number of steps between two evaluations", 0, group="Evaluation", at_least=0
    )
    early_stopping_patience: int = setting(
        "end training after this many consecutive evaluations without a better main metric, or an equal one with "
        "a lower loss; 0: never",
        0,
        group="Evaluation",
        at_least=0,
    )
    use_checkpoint: str = setting(
        "evaluate and predict with the checkpoint that is best on the dev data, or with the last checkpoint; without "
        "--eval_strategy, both values mean the last checkpoint", "best", choices=("best", "last"), group="Evaluation",
    )  # fmt: skip
    frozen_layers: int = setting(
        "do not train the embeddings and this many of the lowest layers; 0: train all weights; -1: train only the head",
        0,
        at_least=-1,
    )
    layer_learning_rate_decay: float = setting(
        "ratio of the learning rate of each layer to the rate of the layer above; the head and the pooler have the "
        "full rate, the top layer has this share of the full rate, and the embeddings have the lowest rate", 1.0,
        above=0, at_most=1,
    )  # fmt: skip
    transfer_layers: int | None = setting(
        "take only the embeddings and this many of the lowest layers from --init_checkpoint, which may have more "
        "layers than --bert_config_file; the other layers, the pooler and the head start from random weights; default: "
        "take all weights", None, at_least=0,
    )  # fmt: skip
    special_tokens: str = setting(
        "pretrained: the special tokens of a row have the embeddings from --init_checkpoint, as in BERT; new: the "
        "start, delimiter and extract tokens start from random embeddings, and a classifier reads the last layer at "
        "the extract token, as in GPT; new needs a model of one direction", "pretrained",
        choices=("pretrained", "new"),
    )  # fmt: skip
    lm_coefficient: float = setting(
        "add this multiple of the language model's loss on the same rows to the loss, as in GPT (0.5 there); needs a "
        "model of one direction", 0.0, at_least=0,
    )  # fmt: skip
    unlabeled_data_path: str = setting(
        "with --teacher: comma-separated files with more training texts, in the format of test data; only the "
        "teacher's outputs are learned for them", "", group="Distillation", per_worker=True,
    )  # fmt: skip
    sweep: bool = setting(
        "train one run for each combination of the values in the --sweep_ flags, each in its own folder below "
        "--output_dir, and keep only the checkpoints of the run that is best on the dev data", False, group="Sweep",
    )  # fmt: skip
    sweep_learning_rates: str = setting(
        "with --sweep: learning rates, comma-separated", "5e-5,3e-5,2e-5", group="Sweep"
    )
    sweep_batch_sizes: str = setting("with --sweep: batch sizes, comma-separated", "16,32", group="Sweep")
    sweep_epochs: str = setting("with --sweep: numbers of epochs, comma-separated", "2,3,4", group="Sweep")
    sweep_restarts: int = setting(
        "with --sweep: number of runs per combination; each run has its own seed for data order and new weights",
        1,
        group="Sweep",
        at_least=1,
    )
    sweep_checkpoints: bool = setting(
        "with --sweep: fine-tune each checkpoint of the pre-training run in --init_checkpoint, and plot the main "
        "metric on the dev data against the pre-training step, as in Figure 5 of the paper", False, group="Sweep",
    )  # fmt: skip
    sweep_transfer_layers: str = setting(
        "with --sweep: values of --transfer_layers, comma-separated; the report plots the main metric on the dev data "
        "against the number of layers, as in Figure 2 of the GPT paper", "", group="Sweep",
    )  # fmt: skip

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


def check(settings: ProtocolSettings, do_train: bool, do_eval: bool) -> None:
    """Refuses flags that contradict each other, and invalid values of the flags of a sweep."""
    _check_evaluation(settings, do_train and do_eval)
    _check_training(settings)
    check_teacher(settings, do_train)
    require(bool(settings.teacher) or not settings.unlabeled_data_path, "--unlabeled_data_path needs a --teacher")
    _check_sweep(settings, do_train and do_eval)


def _check_evaluation(settings: ProtocolSettings, evaluates: bool) -> None:
    strategy, every, patience = settings.eval_strategy, settings.eval_steps, settings.early_stopping_patience
    require(
        strategy == "no" or evaluates,
        f"--eval_strategy={strategy} evaluates during training; add --do_train and --do_eval, or drop the flag",
    )
    require(
        (strategy == "steps") == (every > 0),
        f"--eval_strategy={strategy} with --eval_steps={every}: give both --eval_strategy=steps and a number of steps, "
        "or neither",
    )
    require(
        not patience or strategy != "no",
        f"--early_stopping_patience={patience} needs evaluations; add --eval_strategy=epoch or steps",
    )


def _check_training(settings: ProtocolSettings) -> None:
    for name in TRAINS_ENCODER:
        value = getattr(settings, name)
        require(
            settings.frozen_layers != -1 or value == getattr(ProtocolSettings, name),
            f"--{name}={value} trains the encoder, but --frozen_layers=-1 does not; drop one of the flags",
        )


def _check_sweep(settings: ProtocolSettings, evaluates: bool) -> None:
    if not settings.sweep:
        for field in dataclasses.fields(ProtocolSettings):
            changed = getattr(settings, field.name) != field.default
            require(
                not (changed and field.name in SWEEP_FLAGS),
                f"--{field.name} is for a sweep; add --sweep or drop the flag",
            )
        return
    require(evaluates, "--sweep trains runs and compares them on the dev data; add --do_train and --do_eval")
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    for name, flag in _GRID.items():
        value = getattr(settings, name)
        require(
            value == defaults[name], f"--{name}={value} has no effect in a sweep; give --{flag}={value} or drop --sweep"
        )
    _ = settings.grid, settings.transferred


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
