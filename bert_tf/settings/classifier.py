"""Settings of `run_classifier`: every field is a flag."""

import dataclasses

from bert_tf.command_line import require, setting
from bert_tf.settings.finetuning import FineTuningSettings

_OWN = ("own", "tsv")


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(FineTuningSettings):
    """Settings of `run_classifier`; names and defaults of google-research/bert.

    Flags of a user's own data that are left out take the value of the run in `output_dir`, else their default.
    """

    data_dir: str = setting("folder with train, dev and test, as .tsv; own data also as .csv, .jsonl or .json", "")
    task_name: str = setting("MRPC, CoLA, SST-2, STS-B, or own (also: tsv) for your own data", "")
    has_header: bool | None = setting(
        "own data: the first line names the columns; default: true", None, alias="tsv_has_header"
    )
    text_a_column: str | None = setting(
        "own data: column of the (first) text, by name or number from 0; default: text", None,
        alias="tsv_text_a_column",
    )  # fmt: skip
    text_b_column: str | None = setting(
        "own data: column of the second text; default: none", None, alias="tsv_text_b_column"
    )
    label_column: str | None = setting(
        "own data: column of the label, by name or number from 0; default: label", None, alias="tsv_label_column"
    )
    labels: str = setting("own data: comma-separated labels; empty: the sorted labels of train", "", alias="tsv_labels")
    quoted: bool | None = setting(
        "own .tsv files: cells may stand in double quotes, which are removed; default: quotes are text, but a file "
        "whose texts all stand in quotes is refused", None, alias="tsv_quoted",
    )  # fmt: skip
    regression: bool = setting("own data: the label is a number to learn", False, alias="tsv_regression")
    multi_label: bool = setting("own data: an example has any number of labels, also none", False)
    label_separator: str | None = setting(
        "--multi_label: separates the labels of a cell, unless it is a JSON list; default: a comma", None
    )
    label_file: str = setting("own data: file with one label a line, for labels with commas", "")
    id_column: str = setting("own data: column with a name for each example, for test_predictions.tsv", "")
    data_format: str = setting("own data: format of the files", "auto", choices=("auto", "tsv", "csv", "jsonl"))
    class_weights: str = setting(
        "own data: weights of the classes in the loss: balanced, or label=weight,label=weight, or a JSON object", ""
    )
    tune_thresholds: bool = setting(
        "--multi_label: choose the threshold of each label that gives the best F1 on the dev data; the run's folder "
        "keeps them for prediction and export", False,
    )  # fmt: skip
    train_data_path: str = setting("training data, if it is not in --data_dir", "")
    eval_data_path: str = setting("dev data, if it is not in --data_dir", "")
    test_data_path: str = setting("test data, if it is not in --data_dir", "")
    tfds_name: str = setting(
        "set of TensorFlow Datasets that replaces --data_dir and --task_name, such as glue/mrpc or imdb_reviews; the "
        "flags of columns name its features, which its description gives otherwise", "",
    )  # fmt: skip
    tfds_data_dir: str = setting("folder of TensorFlow Datasets; empty: ~/tensorflow_datasets", "")
    tfds_splits: str = setting(
        "--tfds_name: its splits for train, dev and test, such as train[:90%],train[90%:],test; empty: train, "
        "validation and test", "",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        self._check_data()
        named = bool(self.labels or self.label_file)
        require(
            not (self.regression and named),
            "--regression learns numbers, and --labels and --label_file name classes; drop one of them",
        )
        require(not (self.labels and self.label_file), "--labels and --label_file name the same; drop one of them")
        require(not (self.regression and self.multi_label), "--regression and --multi_label contradict; drop one")
        require(not (self.regression and self.class_weights), "--class_weights is for classes; drop --regression or it")
        require(self.label_separator != "", "--label_separator is empty; leave it out for a comma")
        require(not self.tune_thresholds or self.do_eval, "--tune_thresholds needs --do_eval, for the dev data")

    def _check_data(self) -> None:
        has_paths = bool(self.train_data_path or self.eval_data_path or self.test_data_path)
        if not self.tfds_name:
            require(not (self.tfds_data_dir or self.tfds_splits), "--tfds_data_dir and --tfds_splits need --tfds_name")
            require(bool(self.data_dir.strip()) or has_paths, "--data_dir is empty; name the folder with the data")
            require(bool(self.task_name.strip()), "--task_name is empty; give it: own for your own data")
            return
        require(
            not (self.data_dir or has_paths), f"--tfds_name={self.tfds_name} and files are two sets of data; drop one"
        )
        require(
            self.task_name.lower() in ("", *_OWN),
            f"--task_name={self.task_name}: --tfds_name gives the task; leave --task_name out",
        )
        require(
            not self.multi_label, "--multi_label: the features of --tfds_name give the kind of the label; drop the flag"
        )
