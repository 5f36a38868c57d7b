"""Flags of a model and its tokenizer that several scripts share."""

import dataclasses

from bert_tf.core.command_line import Settings, setting


@dataclasses.dataclass(frozen=True)
class ModelFiles(Settings):
    """The files that describe a model."""

    flag_group = "Model"

    bert_config_file: str = setting(
        "JSON file with the configuration of the model; empty: the file beside the checkpoint", "", first=True,
        per_worker=True,
    )  # fmt: skip
    vocab_file: str = setting(
        "vocabulary, one token per line; empty: the file beside the checkpoint", "", per_worker=True
    )
    ignore_checkpoint_tokenizer: bool = setting(
        "use the checkpoint even if it was trained with a different tokenizer", False
    )


@dataclasses.dataclass(frozen=True)
class Casing(Settings):
    """What the tokenizer does with capital letters and accents."""

    flag_group = "Model"

    do_lower_case: bool | None = setting(
        "lower-case text; default: from the run, else from the files beside the vocabulary or the checkpoint; else "
        "true, or false if the vocabulary has tokens with capital letters", None,
    )  # fmt: skip
    strip_accents: bool | None = setting(
        "strip accents; default: from the same files, else the same as --do_lower_case, but not if only the vocabulary "
        "decides and has accents", None,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Checkpoint(ModelFiles, Casing):
    """A checkpoint that a script reads, and its tokenizer."""

    init_checkpoint: str = setting("checkpoint in any supported format: prefix, folder, or hf://owner/model")


@dataclasses.dataclass(frozen=True)
class ChosenCheckpoint(Settings):
    """The checkpoint of a run."""

    flag_group = "Run"

    use_checkpoint: str = setting(
        "use the checkpoint that is best on the dev data, or the last checkpoint; if the run has no --eval_strategy, "
        "both values mean the last checkpoint", "best", choices=("best", "last"), first=True,
    )  # fmt: skip


def pooling(group: str, default: str):
    """Returns a new field of the flag --pooling, whose default differs between the scripts."""
    return setting(
        f"the vector of a text: the vector of [CLS], or the mean or maximum over all tokens; default: {default}", None,
        choices=("cls", "mean", "max"), group=group, first=True,
    )  # fmt: skip
