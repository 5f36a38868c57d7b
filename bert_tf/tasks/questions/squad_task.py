"""The task of answering questions about a context, where the answer is a span of the context: SQuAD 1.1 and 2.0.

Paper: section 3.2, Figure 4 (c); sections 4.2 and 4.3.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.config import BertConfig, require_segments
from bert_tf.core.errors import InputError
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import LOSS, ConstantAnswer, Distillation, Encoded, Split, Task
from bert_tf.finetuning.task_data import NO_DATA, TaskData
from bert_tf.modeling.heads import SpanHead
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks import example_checks
from bert_tf.tasks.questions import squad_results
from bert_tf.tasks.questions.matched_windows import matched_logits
from bert_tf.tasks.questions.squad_answers import Decoding, decode
from bert_tf.tasks.questions.squad_file import Question
from bert_tf.tasks.questions.squad_source import question_data
from bert_tf.tasks.questions.squad_windows import encode_questions
from bert_tf.tasks.tuned_file import TunedFile
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer
from bert_tf.training.divergence import divergence
from bert_tf.training.metrics import Form, Metric

QUESTIONS = "questions"
NAME = "squad"
# The flags that change the model or its data. A run's `task.json` records the values of these flags.
OF_MODEL = ("version_2_with_negative", "doc_stride", "max_query_length")
# The logit of a position without a token. This logit is finite, so means and differences of logits are finite too.
_NO_TOKEN = -1e9


@dataclasses.dataclass(frozen=True)
class SquadTask(Task):
    """Finds the answer to a question in the question's context."""

    decoding: Decoding  # options for decoding logits to answers
    doc_stride: int = 128
    max_query_length: int = 64
    run_folder: str = ""  # folder with the tuned null threshold, which is used if `null_threshold` is None
    null_threshold: float | None = None  # value of the flag `null_score_diff_threshold`; None if the flag is not given
    tune_null_threshold: bool = False  # whether an evaluation chooses a new threshold
    data: TaskData = NO_DATA

    kind: ClassVar[str] = QUESTIONS
    name: ClassVar[str] = NAME
    labels: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[Metric, ...]] = (
        LOSS,
        Metric("span_accuracy", "span acc", "task", form=Form.FRACTION, higher_is_better=True),
    )
    example_and_row_names: ClassVar[tuple[str, str]] = ("questions", "windows")

    @property
    def test_is_dev(self) -> bool:
        """Whether `--predict_file` is both the dev data and the test data; false if the dev data is held out."""
        return not (self.data.held_out and self.data.held_out.is_dev)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"version_2_with_negative": self.decoding.has_unanswerable}

    def data_facts(self) -> dict[str, Any]:
        return super().data_facts() | {"doc_stride": self.doc_stride, "max_query_length": self.max_query_length}

    def evaluation_facts(self) -> dict[str, Any]:
        return {"n_best_size": self.decoding.n_best_size, "max_answer_length": self.decoding.max_answer_length}

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:
        """Refuses a model without a second segment, and rows that are too short for a context."""
        require_segments(config, settings.bert_config_file)
        room = settings.max_seq_length - self.max_query_length - 3
        if room < 1:
            raise InputError(
                f"--max_seq_length={settings.max_seq_length}: a question of --max_query_length="
                f"{self.max_query_length} leaves no room for its context; raise --max_seq_length or lower "
                "--max_query_length"
            )

    def check_examples(self, examples: Mapping[str, Sequence[Question]]) -> None:
        example_checks.warn_of_texts(examples)

    def encode(self, examples: Sequence[Question], tokenizer: BertTokenizer, max_seq_length: int) -> Encoded:
        return encode_questions(examples, tokenizer, max_seq_length, self.doc_stride, self.max_query_length)

    def model_inputs(self, columns: Encoded, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        """Packs a question and a window into a row: [CLS] question [SEP] window [SEP]."""
        return pack(columns["segment_a"], columns["segment_b"], max_seq_length=max_seq_length, **tokenizer.row_form)

    def head(self, config: BertConfig) -> keras.layers.Layer:
        return SpanHead(config)

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weights of rows, float32 [B]; the weight of a row with an unknown answer is 0."""
        return batch["row_weights"] * batch["has_label"]

    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the loss, and whether both predicted positions are right. The loss is the mean of the
        cross-entropies of start and end. The softmax is over the tokens of the row.
        `logits`: logits of start and end, float32 [B, S, 2].
        `batch`: a batch with `start_positions` and `end_positions`, int32 [B]."""
        sides = tf.unstack(self.prediction(logits, batch), axis=-1)  # two tensors [B, S]
        positions = (batch["start_positions"], batch["end_positions"])
        losses, right = [], []
        for side, position in zip(sides, positions, strict=True):
            losses.append(tf.nn.sparse_softmax_cross_entropy_with_logits(position, side))
            right.append(tf.argmax(side, -1, tf.int32) == position)
        return {
            "loss": (losses[0] + losses[1]) / 2,
            "span_accuracy": tf.cast(right[0] & right[1], tf.float32),
        }

    @property
    def distillation(self) -> Distillation:
        """See `Task`. The loss is the mean of the losses of start and end, float32 [B]."""

        def losses(teacher, logits, temperature, batch):
            both = (self.prediction(each, batch) for each in (teacher, logits))
            return tf.reduce_mean(divergence(*both, temperature, axis=1), -1)

        def of_rows(split, teacher, taught, outputs):
            return matched_logits(split, taught, outputs, _NO_TOKEN)

        return Distillation(losses, lambda batch: batch["row_weights"], self.prediction, of_rows)

    def output_counts(self, split: Split) -> np.ndarray:
        return split.lengths.astype(np.int64)

    def prediction(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the logits [B, S, 2], with very low values at all positions without a token of the row."""
        # In a packed row, the other positions have tokens of other rows. In a padded row, they have padding.
        return of_tokens(logits, batch["input_mask"])

    def by_example(self, split: Split, predictions: np.ndarray) -> tuple[Split, np.ndarray]:
        """Decodes the logits [N, S, 2] of all windows; the result has one `SpanAnswers` for each question."""
        answers = np.empty(len(split.examples), object)
        answers[:] = decode(
            split.examples, split.columns, split.example_ids, predictions, split.tokenizer, self.decoding
        )
        ids = np.arange(len(split.examples))
        return dataclasses.replace(split, columns={}, example_ids=ids, lengths=None), answers

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the official metric from `SpanAnswers`. For SQuAD 2.0, adds `null_threshold`."""
        threshold = self._threshold(split, predictions)
        texts = [answers.text(threshold) for answers in predictions]
        scores = squad_results.scores(split.examples, texts, self.decoding.has_unanswerable)
        return scores | {"null_threshold": threshold} if self.decoding.has_unanswerable else scores

    def _threshold(self, split: Split, answers: Sequence[Any]) -> float:
        if self.tune_null_threshold and self.decoding.has_unanswerable:
            return squad_results.best_threshold(split.examples, answers)
        return self._chosen_threshold(self.run_folder)

    def _chosen_threshold(self, folder: str) -> float:
        if not self.decoding.has_unanswerable:
            return 0.0
        return squad_results.NULL_THRESHOLD.read(folder) if self.null_threshold is None else self.null_threshold

    def is_labeled(self, examples: Sequence[Question]) -> bool:
        """See `Task`. A question without an answer counts as labeled only in SQuAD 2.0."""
        accepts_none = self.decoding.has_unanswerable
        return all(q.answers is not None and (q.answers or accepts_none) for q in examples)

    def baseline(self, split: Split) -> ConstantAnswer | None:
        """Returns the scores of predicting "no answer" for every question; None if every question has an answer."""
        if not self.decoding.has_unanswerable:
            return None
        return ConstantAnswer("no answer", squad_results.scores(split.examples, [""] * len(split.examples), True))

    def only_answer(self, split: Split, predictions: np.ndarray) -> str:
        """Returns "no answer" if this is the prediction for every question although some questions have an answer."""
        threshold = self._threshold(split, predictions)
        is_none = not any(answers.text(threshold) for answers in predictions)
        return "no answer" if is_none and any(question.answers for question in split.examples) else ""

    @property
    def tuned(self) -> TunedFile | None:
        return squad_results.NULL_THRESHOLD if self.decoding.has_unanswerable else None

    def without_tuning(self, folder: str) -> "SquadTask":
        return dataclasses.replace(self, tune_null_threshold=False, run_folder=folder)

    def write_evaluation(
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """Writes the prediction files, the answers for the report, and the tuned threshold."""
        threshold = self._threshold(split, predictions)
        for path in squad_results.write_predictions(folder, split.examples, predictions, threshold):
            logging.info("wrote %s", path)
        has_none = self.decoding.has_unanswerable
        squad_results.write_answers(folder, split.examples, predictions, threshold, has_none, prefix)
        if self.tune_null_threshold:
            squad_results.NULL_THRESHOLD.write(folder, threshold, step)
            logging.info("wrote the null threshold %.4g to %s", threshold, folder)

    def check_checkpoint(self, folder: str, step: int | None) -> None:
        """Refuses a folder that has lost its threshold file, and a threshold of another checkpoint. If the flags give a
        threshold or tune a new one, nothing is refused."""
        if self.decoding.has_unanswerable and not self.tune_null_threshold and self.null_threshold is None:
            squad_results.NULL_THRESHOLD.read(folder, step)

    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        return squad_results.write_predictions(folder, split.examples, predictions, self._chosen_threshold(folder))


def of_tokens(logits: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
    """Returns the logits [B, S, 2], with very low values where `input_mask`, int32 [B, S], is 0."""
    return tf.where(tf.expand_dims(input_mask, -1) > 0, logits, _NO_TOKEN)


def squad_task(command: Command) -> SquadTask:
    settings, of_model = command.settings, command.of_model(*OF_MODEL)
    has_unanswerable = of_model["version_2_with_negative"]
    # A tuned threshold is valid only for the values with which it was tuned, which are the run's values.
    uses_tuned = settings.null_score_diff_threshold is None and squad_results.NULL_THRESHOLD.path(command.results_dir)
    value_of = command.of_model if settings.tune_null_threshold or uses_tuned else command.of_data
    sizes = value_of("n_best_size", "max_answer_length")
    decoding = Decoding(
        **sizes,
        has_unanswerable=has_unanswerable,
        exact_offsets=settings.exact_answer_offsets,
        verbose=settings.verbose_logging,
    )
    data = question_data(settings.data_paths, has_unanswerable)
    is_test = settings.dev_share is not None and settings.do_predict
    return SquadTask(
        decoding,
        of_model["doc_stride"],
        of_model["max_query_length"],
        command.results_dir,
        settings.null_score_diff_threshold,
        settings.tune_null_threshold,
        with_dev_share(data, command, has_dev=data.source.has_dev and not is_test),
    )
