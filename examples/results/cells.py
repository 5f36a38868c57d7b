"""The cells of the comparisons in docs/background/appendix.md: for each cell, its commands and the scores to keep.

A cell is one pre-training, or the fine-tunings of one model on one task with all seeds. All models of a comparison
read the same number of tokens in pre-training.

Paper: sections 5.1 to 5.3, appendix C.
"""

import dataclasses
import itertools
import json
import pathlib

OUT = pathlib.Path("results_output")
SEEDS = 3
STEPS, CHECKPOINTS = 4500, 5
VOCABULARY = 4000
# What replaces a masked token: the shares of [MASK], of the same token and of a random token (Table 8).
MASKINGS = ("80-10-10", "100-0-0", "80-0-20", "80-20-0", "0-20-80", "0-0-100")
FEATURES = ("embeddings", "second_to_last_hidden", "last_hidden", "weighted_sum_last_four", "concat_last_four",
            "weighted_sum_all")  # fmt: skip
# Layers, hidden size and attention heads of the models (Table 6). All other comparisons use the second size, except for
# Table 8: with four layers, some maskings do not get beyond the frequencies of the tokens in 4,500 steps.
SIZES = ("2-128-2", "4-128-2", "2-256-4")
SMALLEST, BASE = SIZES[:2]
# Number of epochs of each task; the learning rate comes from the cell `rate-TASK`.
EPOCHS = {"SST-2": 3, "STS-B": 4, "XQuAD": 6, "WNUT-17": 8}
RATES = ("2e-4", "5e-4", "1e-3")
_FEATURE_RATE = "1e-3"


@dataclasses.dataclass(frozen=True)
class Cell:
    """Commands, and what to keep of their results.

    Attributes:
      name: name of the cell and of its JSON file.
      commands: the commands, as lists of words.
      needs: the cells that must have run on this machine, because this cell reads their output.
      folder: the folder of the last command's run.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    needs: tuple[str, ...] = ()

    @property
    def folder(self) -> pathlib.Path:
        """The output folder of the cell."""
        return OUT / self.name

    @property
    def is_pretraining(self) -> bool:
        """Whether the cell is a pre-training, of which other cells need the checkpoint."""
        return self.name.startswith("pretrain-")


def config_of(size: str, direction: str, dropout: float) -> pathlib.Path:
    """Returns the path of a configuration."""
    return OUT / f"config-{size}-{direction}-{dropout}.json"


def write_configs() -> None:
    """Writes the configurations of all models, for pre-training without dropout and for fine-tuning with dropout."""
    for size, direction, dropout in itertools.product(SIZES, ("bidi", "ltr", "rtl"), (0.0, 0.1)):
        layers, hidden, heads = map(int, size.split("-"))
        entries = {
            "vocab_size": VOCABULARY, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": 4 * hidden, "hidden_act": "gelu", "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": dropout, "max_position_embeddings": 128, "type_vocab_size": 2,
            # A narrow model learns sooner without dropout and with larger initial weights; see
            # docs/background/appendix.md.
            "initializer_range": round(hidden**-0.5, 4), "directionality": direction,
        }  # fmt: skip
        config_of(size, direction, dropout).write_text(json.dumps(entries, indent=2) + "\n")


def _pretraining(name: str, data: str, direction: str = "bidi", size: str = BASE, next_sentence: bool = False) -> Cell:
    words = [
        "run_pretraining", f"--bert_config_file={config_of(size, direction, 0.0)}",
        f"--output_dir={OUT}/pretrain-{name}",
        f"--input_file={OUT}/{data}_train.tfrecord", f"--eval_input_file={OUT}/{data}_dev.tfrecord", "--do_train",
        "--do_eval", "--max_seq_length=64", "--train_batch_size=32", "--eval_batch_size=64", "--max_eval_steps=100",
        "--learning_rate=1e-3", f"--num_train_steps={STEPS}", f"--num_warmup_steps={STEPS // 10}",
        f"--save_checkpoints_steps={STEPS // CHECKPOINTS}", "--keep_checkpoint_max=0", "--iterations_per_loop=50",
    ]  # fmt: skip
    words += ["--max_predictions_per_seq=10"] if direction == "bidi" else []
    words += [] if next_sentence else ["--nouse_next_sentence_label"]
    return Cell(f"pretrain-{name}", (tuple(words),))


def pretrainings() -> list[Cell]:
    """Returns the cells of all pre-trainings, the most used ones first."""
    cells = [
        _pretraining("mlm", "pairs-80-10-10"),
        _pretraining("bert", "pairs-80-10-10", next_sentence=True),
        _pretraining("ltr", "pairs-80-10-10", "ltr"),
        _pretraining("lm-ltr", "lm", "ltr"),
        _pretraining("lm-rtl", "lm", "rtl"),
    ]
    cells += [_pretraining(masked(name), f"pairs-{name}", size=SMALLEST) for name in MASKINGS[1:]]
    return cells + [_pretraining(f"mlm-{size}", "pairs-80-10-10", size=size) for size in SIZES if size != BASE]


def masked(masking: str) -> str:
    """Returns the name of the model of a masking in Table 8."""
    return f"mlm-{SMALLEST}" + ("" if masking == MASKINGS[0] else f"-{masking}")


def _data(task: str, data: pathlib.Path) -> list[str]:
    if task == "WNUT-17":
        files = {split: data / f"ner/wnut17-{split}.conll" for split in ("train", "dev")}
        return ["run_ner", f"--train_data_path={files['train']}", f"--eval_data_path={files['dev']}"]
    if task == "XQuAD":
        columns = ["--text_a_column=question", "--text_b_column=sentence", "--label_column=label"]
        return ["run_classifier", "--task_name=own", f"--data_dir={OUT}/data-XQuAD", *columns]
    folder = data / "glue/STS-B" if task == "STS-B" else OUT / "data-SST-2"
    return ["run_classifier", f"--task_name={task}", f"--data_dir={folder}"]


def finetuning(
    name: str, task: str, model: str, rate: str, data: pathlib.Path, more: tuple[str, ...] = (),
    direction: str = "bidi", size: str = BASE, seeds: int = SEEDS, config: str = "",
) -> Cell:  # fmt: skip
    """Returns a cell that fine-tunes a pre-trained model with all seeds; `rate` may list several learning rates."""
    config = config or f"--bert_config_file={config_of(size, direction, 0.1)}"
    vocabulary = () if model == "minilm" else (f"--vocab_file={OUT}/vocab.txt",)
    checkpoints = {"minilm": str(OUT / "minilm"), "pair": f"{OUT}/pretrain-lm-ltr,{OUT}/pretrain-lm-rtl"}
    needs = {"minilm": (), "pair": ("pretrain-lm-ltr", "pretrain-lm-rtl")}.get(model, (f"pretrain-{model}",))
    words = [
        *_data(task, data), *([config] if config != "none" else []), *vocabulary,
        f"--init_checkpoint={checkpoints.get(model, OUT / f'pretrain-{model}')}",
        f"--output_dir={OUT}/{name}", "--do_train", "--do_eval", "--max_seq_length=64", "--eval_batch_size=64",
        "--sweep", f"--sweep_learning_rates={rate}", "--sweep_batch_sizes=32", f"--sweep_epochs={EPOCHS[task]}",
        f"--sweep_restarts={seeds}", "--save_checkpoints_steps=100000", "--iterations_per_loop=50",
        "--noadam_bias_correction", "--nodecay_after_warmup", *more,
    ]  # fmt: skip
    return Cell(name, (tuple(words),), needs)


def all_cells(data: pathlib.Path, rates: dict[str, str]) -> list[Cell]:
    """Returns all cells whose commands are known, in the order in which they should run.

    Args:
      data: the folder with the data.
      rates: the learning rates of the tasks whose cell for the rate has run.
    """
    pretrained = {cell.name: cell for cell in pretrainings()}
    cells = [pretrained["pretrain-mlm"]]
    cells += [finetuning(f"rate-{task}", task, "mlm", ",".join(RATES), data, seeds=1) for task in EPOCHS]
    groups = [table5(data, rates), figure5(data, rates), table8(data, rates), table6(data, rates), table7(data)]
    cells += [cell for group in groups for cell in group]
    found: dict[str, Cell] = {}
    for cell in cells:
        found |= {name: pretrained[name] for name in cell.needs} | {cell.name: cell}
    return list(found.values())


def table5(data: pathlib.Path, rates: dict[str, str]) -> list[Cell]:
    """Returns the cells of the comparison of directions."""
    gpt = ("--special_tokens=new", "--lm_coefficient=0.5")
    models = {
        "mlm": ("mlm", "bidi", ()), "bert": ("bert", "bidi", ()), "ltr": ("ltr", "ltr", ()),
        "ltr-bilstm": ("ltr", "ltr", ("--bilstm_head",)), "gpt": ("lm-ltr", "ltr", gpt),
    }  # fmt: skip
    cells = []
    for name, (model, direction, more) in models.items():
        for task, rate in rates.items():
            orders = ("--pair_order=both",) if name == "gpt" and task == "STS-B" else ()
            cells.append(finetuning(f"table5-{name}-{task}", task, model, rate, data, (*more, *orders), direction))
    for name in ("mlm", "pair"):
        for task in EPOCHS:
            frozen = ("--frozen_layers=-1", "--pooling=mean")
            more = ("--feature_layers=elmo", "--lstm_size=128") if task == "WNUT-17" else frozen
            cell = f"table5-features-{name}-{task}"
            cells.append(
                finetuning(cell, task, name, _FEATURE_RATE, data, more, config="none" if name == "pair" else "")
            )
    return cells


def table6(data: pathlib.Path, rates: dict[str, str]) -> list[Cell]:
    """Returns the cells of the comparison of sizes; the middle size is the model of Table 5."""
    return [
        finetuning(f"table6-{size}-{task}", task, f"mlm-{size}", rate, data, size=size)
        for size in SIZES
        if size != BASE
        for task, rate in rates.items()
    ]


def table7(data: pathlib.Path) -> list[Cell]:
    """Returns the cells of the choices of layers, for our model and for MiniLM."""
    return [
        finetuning(
            f"table7-{model}-{features}", "WNUT-17", model, _FEATURE_RATE, data,
            (f"--feature_layers={features}", "--lstm_size=128", f"--activations_dir={OUT}/activations-{model}"),
            config="none" if model == "minilm" else "",
        )
        for model in ("mlm", "minilm")
        for features in FEATURES
    ]  # fmt: skip


def table8(data: pathlib.Path, rates: dict[str, str]) -> list[Cell]:
    """Returns the cells of the comparison of maskings; fine-tuning of the first masking is in Table 6."""
    cells = []
    for masking in MASKINGS:
        model = masked(masking)
        if masking != MASKINGS[0] and "WNUT-17" in rates:
            cells.append(finetuning(f"table8-{masking}", "WNUT-17", model, rates["WNUT-17"], data, size=SMALLEST))
        more = ("--feature_layers=weighted_sum_all", "--lstm_size=128")
        name = f"table8-features-{masking}"
        cells.append(finetuning(name, "WNUT-17", model, _FEATURE_RATE, data, more, size=SMALLEST))
    return cells


def figure5(data: pathlib.Path, rates: dict[str, str]) -> list[Cell]:
    """Returns the cells that fine-tune the checkpoints of two pre-trainings."""
    return [
        finetuning(f"figure5-{model}", "SST-2", model, rates["SST-2"], data, ("--sweep_checkpoints",), direction)
        for model, direction in (("mlm", "bidi"), ("ltr", "ltr"))
        if "SST-2" in rates
    ]
