"""Settings of the export script: every field is a flag."""

import dataclasses
from collections.abc import Sequence

from bert_tf.core.command_line import require, require_folder, setting
from bert_tf.settings.model import ChosenCheckpoint, pooling

# The groups of the flags that only some kinds of models read.
OF_SOME_KINDS = ("Questions", "Embeddings and masks")


@dataclasses.dataclass(frozen=True)
class ExportSettings(ChosenCheckpoint):
    """Settings of `export_saved_model`."""

    flag_group = "Model"

    checkpoint_dir: str = setting(
        "folder of a fine-tuning run (its --output_dir), or a fine-tuned model of another project; with "
        "--task_name=embeddings or fill_mask, any checkpoint"
    )
    export_dir: str = setting(
        "version to write, such as models/mrpc/1; or a model's folder, such as models/mrpc, to write its next version",
        group="Output",
    )
    has_pairs: bool | None = setting(
        "a text classifier of another project: whether it reads pairs of texts", None, first=True
    )
    allow_unfinished: bool = setting("export a checkpoint of unfinished training", False)
    task_name: str = setting(
        "embeddings or fill_mask: export a checkpoint without fine-tuning; a task's name: refuse a run that was "
        "trained on another task; empty: accept a run of any task", "", first=True,
    )  # fmt: skip
    dtype: str = setting(
        "dtype of the weights and of the computation; probabilities are always float32", "float32",
        choices=("float32", "bfloat16"), group="Output", first=True, not_with=("format=litert",),
    )  # fmt: skip
    format: str = setting(
        "saved_model: for TF Serving; litert: a .tflite file whose inputs are token ids, and the tokenizer's files",
        "saved_model", choices=("saved_model", "litert"), group="Output", first=True,
    )  # fmt: skip
    device: str = setting(
        "processor for which the graph is arranged; it runs on the other too, with the same results, but slower",
        "cpu", choices=("cpu", "gpu"), group="Output",
    )  # fmt: skip
    quantize: str = setting(
        "weights of the .tflite file; none: float32; int8: 8 bits, with dynamic quantization of activations", "none",
        choices=("none", "int8"), group="Output", first=True, only_with="format=litert",
    )  # fmt: skip
    n_best_size: int | None = setting(
        "question answering: number of best answers whose probabilities add up to 1; default: the run's value, or 20",
        None, group="Questions", above=0,
    )  # fmt: skip
    max_answer_length: int | None = setting(
        "question answering: maximum number of tokens in an answer; default: the run's value, or 30", None,
        group="Questions", above=0,
    )  # fmt: skip
    null_score_diff_threshold: float | None = setting(
        'models trained with --version_2_with_negative: return "" (no answer) if the score of "" exceeds the best '
        "answer's score by more than this value; default: the value found by run_squad --tune_null_threshold, or 0",
        None, group="Questions",
    )  # fmt: skip
    top_k: int = setting(
        "--task_name=fill_mask: number of tokens to return for each mask", 5, group="Embeddings and masks", above=0
    )
    layers: str = setting(
        "--task_name=embeddings: layers to read, comma-separated: -1 is the top layer, 1 the lowest, 0 the embeddings",
        "-1", group="Embeddings and masks",
    )  # fmt: skip
    pooling: str | None = pooling(
        "Embeddings and masks", "for --task_name=embeddings, from sentence-transformers' files, or mean"
    )
    normalize: bool | None = setting(
        "--task_name=embeddings: scale pooled vectors to length 1; default: as in modules.json, or false", None,
        group="Embeddings and masks",
    )  # fmt: skip
    dimensions: int | None = setting(
        "--task_name=embeddings: keep only the first numbers of pooled vectors, before they are normalized; for models "
        "that were trained with --matryoshka_dims", None, group="Embeddings and masks", above=0,
    )  # fmt: skip
    max_seq_length: int | None = setting(
        "--task_name=embeddings or fill_mask: maximum number of tokens in a row; longer texts are truncated; default "
        "for embeddings: the value in the files of a sentence-transformers checkpoint (sentence_bert_config.json or "
        "tokenizer_config.json), else 128; default for fill_mask: the model's number of positions", None,
        group="Embeddings and masks", first=True, at_least=3,
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        require_folder("export_dir", self.export_dir)

    def check_kind(self, task_name: str, flags: Sequence[str]) -> None:
        """Raises InputError if a flag was given that the model's kind does not read.
        `flags`: names of the flags in `OF_SOME_KINDS` that the kind reads."""
        for field in dataclasses.fields(self):
            is_read = field.metadata["group"] not in OF_SOME_KINDS or field.name in flags
            require(
                is_read or getattr(self, field.name) == field.default,
                f"--{field.name}: an export of {task_name} does not use this flag; remove it",
            )
