"""Settings of `run_classifier`: every field is a flag."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import require, setting
from bert_tf.core.errors import InputError
from bert_tf.settings.finetuning import PATH_FLAGS, FolderSettings

# The name of a task on a user's own data.
OWN_DATA = "own"
# The name of a task whose texts are in memory. Users cannot give this name as the value of a flag.
IN_MEMORY = "your texts"
_SOURCES = ("data_dir", "tfds_name")
_COLUMNS = ("text_a_column", "text_b_column", "label_column")
# Maps tf-models-official's modes to the equivalent flags.
_MODES = {
    "train_and_eval": ("do_train", "do_eval"),
    "train": ("do_train",),
    "eval": ("do_eval",),
    "predict": ("do_predict",),
    "export_only": (),
}


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(FolderSettings):
    """Settings of `run_classifier`, with the names and defaults of google-research/bert. If a flag for a user's own
    data is left out, its value is the value of the run in `output_dir`. Without such a run, the flag has its default.
    """

    flag_group = "Data"
    script: ClassVar[str] = "run_classifier"
    reported: ClassVar[tuple[str, ...]] = ("task_name", "data_dir", "pooling", "long_text")

    tuned_on_dev: ClassVar[tuple[str, ...]] = ("tune_thresholds",)

    data_dir: str = setting(
        "folder with train.tsv, dev.tsv and test.tsv; files of own data may also be .csv, .jsonl, .json or .parquet, "
        "and the dev file may be named val or validation", "", first=True, per_worker=True,
    )  # fmt: skip
    task_name: str = setting(
        "CoLA, SST-2, MRPC, QQP, STS-B, MNLI, QNLI, RTE, WNLI, AX (diagnostic data for an MNLI model), SNLI, SciTail, "
        "XNLI, or own for your own data; default: the task of the run in --output_dir", "", first=True,
    )  # fmt: skip
    has_header: bool | None = setting("own data: the first line names the columns", None, new_run=True)
    text_a_column: str | None = setting(
        "own data: column of the only text or of the first text, by name or by number from 0", None,
        first=True, new_run="text",
    )  # fmt: skip
    text_b_column: str | None = setting("own data: column of the second text", None, first=True, new_run="")
    label_column: str | None = setting(
        "own data: column of the label, by name or by number from 0; with --multi_label also comma-separated columns "
        "with 0 or 1", None, first=True, new_run="label",
    )  # fmt: skip
    labels: str = setting(
        "own data: comma-separated labels; default: from the run in --output_dir, else the sorted labels of the "
        "training data", "",
    )  # fmt: skip
    quoted: bool | None = setting(
        "own .tsv files: cells may be in double quotes, which are removed; default: from the run in --output_dir, else "
        "quotes are part of the text, but it is an error if all texts of a file are in quotes", None,
    )  # fmt: skip
    regression: bool = setting(
        "own data: the label is a number to predict", False, not_with=("labels", "label_file", "multi_label")
    )
    multi_label: bool = setting("own data: an example has any number of labels, or none", False)
    label_separator: str | None = setting(
        "with --multi_label: separator between the labels in a cell that is not a JSON list", None, new_run=","
    )
    label_file: str = setting(
        "own data: file with one label per line, for labels that contain commas", "", per_worker=True,
        not_with=("labels",),
    )  # fmt: skip
    id_column: str | None = setting(
        "own data: column of the test data that contains the examples' ids, which are written into "
        "test_predictions.tsv; empty: write the examples' indices; default: from the run in --output_dir", None,
    )  # fmt: skip
    predictions_with_texts: bool = setting("also write the texts into test_predictions.tsv", False)
    data_format: str = setting("own data: format of the files", "auto", choices=("auto", "tsv", "csv", "jsonl"))
    class_weights: str = setting(
        "weights of the classes in the loss: balanced, or label=weight,label=weight, or a JSON object; "
        "other=weight gives the weight of all other labels", "", group="Training",
    )  # fmt: skip
    tune_thresholds: bool = setting(
        "with --multi_label: choose, for each label, the threshold that gives the best F1 on the dev data; prediction "
        "and export use these thresholds", False, group="Evaluation", only_with="do_eval",
    )  # fmt: skip
    tfds_name: str = setting(
        "data set of TensorFlow Datasets, such as glue/mrpc or imdb_reviews; replaces --data_dir and --task_name; the "
        "column flags name features of the data set; by default, the data set's description gives the features", "",
        not_with=("data_dir", *PATH_FLAGS.values()),
    )  # fmt: skip
    tfds_splits: str = setting(
        "splits for the train, dev and test data, such as train[:90%],train[90%:],test; empty: train, validation and "
        "test", "", only_with="tfds_name",
    )  # fmt: skip

    mode: str = setting(
        "tf-models-official's alternative to --do_train, --do_eval and --do_predict; --mode=predict reads "
        "--eval_data_path if there is no --test_data_path", "flags", choices=("flags", *_MODES), group="Run",
    )  # fmt: skip
    xnli_language: str = setting(
        "with --task_name=XNLI: comma-separated codes of the languages to train, evaluate and predict, or all", "zh",
    )  # fmt: skip
    pooling: str | None = setting(
        "vector that the classifier reads: cls (the pooled [CLS], as in the paper), or mean or max (the mean or the "
        "maximum over all tokens of the row, including [CLS] and [SEP])", None,
        choices=("cls", "mean", "max"), group="Model", new_run="cls",
    )  # fmt: skip
    pair_order: str | None = setting(
        "given: a pair of texts is one row; both: a pair is two rows, one in each order, and the classifier reads the "
        "sum of their vectors, as GPT reads similarity tasks", None,
        choices=("given", "both"), group="Model", new_run="given", not_with=("long_text=window",),
    )  # fmt: skip
    long_text: str | None = setting(
        "how to handle texts longer than --max_seq_length: truncate (keep the first tokens), head_tail (fill a quarter "
        "of the row with the first tokens, and the rest with the last tokens), or window (split a text into several "
        "rows, and average the predictions of these rows)", None,
        choices=("truncate", "head_tail", "window"), group="Model", new_run="truncate",
    )  # fmt: skip
    window_stride: int | None = setting(
        "number of tokens between the starts of two consecutive windows; 0: half a window", None, group="Model",
        at_least=0, new_run=0, only_with="long_text=window",
    )  # fmt: skip

    def __post_init__(self):
        self._resolve_mode()
        super().__post_init__()
        require(self.label_separator != "", "--label_separator is empty; leave the flag out for a comma")

    def _resolve_mode(self) -> None:
        """Replaces `mode` with the equivalent flags, so that copies of the settings keep these flags."""
        export = f"export_saved_model --checkpoint_dir={self.output_dir} --export_dir=FOLDER/1"
        require(self.mode != "export_only", f"--mode=export_only is a separate script: {export}")
        if self.mode == "flags":
            return
        changes = dict.fromkeys(_MODES[self.mode], True) | {"mode": "flags"}
        if self.mode == "predict" and not self.test_data_path:
            changes["test_data_path"] = self.eval_data_path
        for name, value in changes.items():
            object.__setattr__(self, name, value)

    def _check_data(self) -> None:
        paths = self.path_flags.values()
        has_paths = any(getattr(self, name) for name in paths)
        if self.task_name == IN_MEMORY:
            named = [name for name in (*paths, *_SOURCES) if getattr(self, name)]
            require(not named, f"--{''.join(named[:1])} and texts in memory are two data sets; drop one of them")
            columns = [name for name in _COLUMNS if getattr(self, name) is not None and not self.unlabeled_data_path]
            require(
                not columns,
                f"--{''.join(columns[:1])} is for files; name a table's columns of texts text, or text_a and text_b, "
                "and give the name of the label's column as labels",
            )
            return
        if self.tfds_name:
            require(
                self.task_name.lower() in ("", OWN_DATA),
                f"--task_name={self.task_name}: --tfds_name gives the task; leave --task_name out",
            )
            return
        if not (self.data_dir.strip() or has_paths):
            raise InputError("--data_dir is empty; name the folder with the data")
        super()._check_data()
