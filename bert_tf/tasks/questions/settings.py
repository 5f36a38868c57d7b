"""Settings of `run_squad`: every field is a flag."""

import dataclasses
from typing import ClassVar

from bert_tf.core.command_line import setting
from bert_tf.core.flag_parsing import items
from bert_tf.settings.finetuning import FineTuningSettings


@dataclasses.dataclass(frozen=True)
class SquadSettings(FineTuningSettings):
    """Settings of `run_squad`, with the names and defaults of google-research/bert. If a model flag is not given, its
    value is the value of the run in `output_dir`. Without such a run, the flag has its default."""

    flag_group = "Evaluation"
    script: ClassVar[str] = "run_squad"
    reported: ClassVar[tuple[str, ...]] = ("train_file", "predict_file", "version_2_with_negative", "doc_stride")

    path_flags: ClassVar[dict[str, str]] = {"train": "train_file", "dev": "predict_file", "test": "predict_file"}
    default_max_seq_length: ClassVar[int] = 384
    tuned_on_dev: ClassVar[tuple[str, ...]] = ("tune_null_threshold",)

    train_file: str = setting(
        "training data: comma-separated files in SQuAD's JSON format, version 1.1 or 2.0, or JSON Lines of the "
        "library datasets", "", group="Data", first=True, per_worker=True,
    )  # fmt: skip
    predict_file: str = setting(
        "dev data for --do_eval, or test data for --do_predict, which needs no answers: a file in SQuAD's JSON format",
        "", group="Data", first=True, per_worker=True,
    )  # fmt: skip
    doc_stride: int | None = setting(
        "number of tokens between the starts of two windows of a long context", None,
        group="Model", first=True, above=0, new_run=128,
    )  # fmt: skip
    max_query_length: int | None = setting(
        "maximum number of tokens of a question; longer questions are truncated", None, group="Model", above=0,
        new_run=64,
    )  # fmt: skip
    n_best_size: int | None = setting(
        "number of answers to each question in nbest_predictions.json", None, above=0, new_run=20
    )
    max_answer_length: int | None = setting("maximum number of tokens of an answer", None, above=0, new_run=30)
    version_2_with_negative: bool | None = setting(
        "some questions have no answer, as in SQuAD 2.0", None, group="Data", first=True, new_run=False
    )
    null_score_diff_threshold: float | None = setting(
        'with --version_2_with_negative: predict "" (no answer) if the score of "" exceeds the best answer\'s score by '
        "more than this value; default: the value that --tune_null_threshold found for the checkpoint, else 0", None,
    )  # fmt: skip
    tune_null_threshold: bool = setting(
        "with --version_2_with_negative: choose the null_score_diff_threshold that gives the best F1 on the dev data; "
        "later evaluations and predictions use this threshold", False, only_with="do_eval",
        not_with=("null_score_diff_threshold",),
    )  # fmt: skip
    exact_answer_offsets: bool = setting(
        "copy the text of an answer from the context at the character offsets of the answer's tokens, and write the "
        "offsets into nbest_predictions.json; by default, the text is aligned with whole words, as in "
        "google-research/bert", False,
    )  # fmt: skip
    verbose_logging: bool = setting("log each answer whose text cannot be aligned with the context", False)
    ensemble_checkpoints: str = setting(
        "evaluate and predict with the mean logits of several models: comma-separated folders of runs or prefixes of "
        "checkpoints; --output_dir gets the results", "", per_worker=True, not_with=("do_train",),
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        self._require_data()

    @property
    def data_paths(self) -> dict[str, tuple[str, ...]]:
        """The files that the flags name, by split; the training data may consist of several files."""
        paths = super().data_paths
        return paths | {"train": items(self.train_file)} if self.train_file else paths

    @property
    def ensemble_members(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.rstrip("/") for member in items(self.ensemble_checkpoints)))
