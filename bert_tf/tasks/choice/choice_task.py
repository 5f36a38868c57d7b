"""The task of choosing one of several texts. Each choice is a row with a score, and a softmax compares the scores.

Paper: section 4.4.

Letters: G examples.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig, require_segments
from bert_tf.core import storage
from bert_tf.finetuning.dev_share import with_dev_share
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import ACCURACY, LOSS, ConstantAnswer, Distillation, Encoded, Split, Task, tokenize
from bert_tf.finetuning.task_data import NO_DATA, TaskData
from bert_tf.modeling.heads import ClassificationHead
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks import evaluation_file, example_checks
from bert_tf.tasks.choice.choice_files import ChoiceExample, choice_data
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import flops

CHOICE = "choice"
NAME = "SWAG"


def choice_task(command: Command) -> "ChoiceTask":
    """Returns the task for the files in the flags of `run_swag`."""
    settings = command.settings
    return ChoiceTask(with_dev_share(choice_data(settings.data_dir, settings.data_paths), command))


@dataclasses.dataclass(frozen=True)
class ChoiceTask(Task):
    """Chooses the continuation of a text, or the answer to a question about a text."""

    data: TaskData = NO_DATA
    kind = CHOICE
    name = NAME
    labels = ()
    metrics = (LOSS, ACCURACY)
    example_and_row_names = ("examples", "choices")

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:
        """Refuses a model without a second segment."""
        require_segments(config, settings.bert_config_file)

    def check_examples(self, examples: Mapping[str, Sequence[ChoiceExample]]) -> None:
        example_checks.warn_of_texts(examples)

    def encode(self, examples: Sequence[ChoiceExample], tokenizer: BertTokenizer, max_seq_length: int) -> Encoded:
        """Tokenizes examples; each choice becomes a row. Returns the columns:
        - `segment_a`: int32 [N, (tokens)], the token ids of the context.
        - `segment_b`: int32 [N, (tokens)], the token ids of the start and the choice.
        - `choice_ids`: int32 [N], the index of the choice in its example.
        - `label_ids`: float32 [N], 1 for the right choice, and 0 for other choices and for examples without a label.
        - `example_ids`: int [N], the index of the example."""
        counts = [len(example.choices) for example in examples]
        example_ids = np.repeat(np.arange(len(examples)), counts)
        choice_ids = np.concatenate([np.arange(count) for count in counts]).astype(np.int32)
        labels = np.array([-1 if example.label is None else example.label for example in examples])
        seconds = [f"{e.start} {choice}" if e.start else choice for e in examples for choice in e.choices]
        return {
            "segment_a": tf.gather(tokenize([example.context for example in examples], tokenizer), example_ids),
            "segment_b": tokenize(seconds, tokenizer),
            "choice_ids": choice_ids,
            "label_ids": (labels[example_ids] == choice_ids).astype(np.float32),
            "example_ids": example_ids,
        }

    def rows_per_example(self, split: Split) -> np.ndarray:
        """Returns the number of choices of each example, int [G]."""
        return np.bincount(split.example_ids)

    def model_inputs(self, columns: Encoded, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        return pack(columns["segment_a"], columns["segment_b"], max_seq_length=max_seq_length, **tokenizer.row_form)

    def head(self, config: BertConfig) -> keras.layers.Layer:
        """Returns the head, which computes the score of a choice from the pooled output of [CLS]."""
        return ClassificationHead(config, 1)

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weights of rows, float32 [B]; only the rows of right choices have weights above 0. The loss of an
        example is therefore the loss of the row of its right choice."""
        return batch["row_weights"] * batch["label_ids"]

    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the cross-entropy and the accuracy from scores [B, 1]. The values of a row are the values that its
        example would have if the row's choice were the right choice. The choices of an example are consecutive rows. A
        padding row is a copy of row 0, which has `choice_ids` 0, so each padding row counts as an example of its own.
        """
        example = _example(batch)
        below, log_sums = _softmax_terms(logits[:, 0], example)
        # If several choices have the best score, the prediction counts as wrong.
        as_good = _sum(tf.cast(below >= 0, tf.float32), example)
        return {"loss": log_sums - below, "accuracy": tf.cast((below >= 0) & (as_good == 1), tf.float32)}

    @property
    def distillation(self) -> Distillation:
        """See `Task`. Each row has the loss of its example, of which only the first row has a weight above 0."""

        def losses(teacher, logits, temperature, batch):
            example = _example(batch)
            of_teacher, own = (
                tf.subtract(*_softmax_terms(scores[:, 0] / temperature, example)) for scores in (teacher, logits)
            )
            return temperature**2 * _sum(tf.exp(of_teacher) * (of_teacher - own), example)

        def weights(batch):
            return batch["row_weights"] * tf.cast(batch["choice_ids"] == 0, tf.float32)

        return Distillation(losses, weights, self.prediction)

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the accuracy from scores [N, 1]. If choices with different texts have the best score, the prediction
        counts as wrong. Without this rule, a model that gives all choices the same score would always predict the first
        choice. In SWAG's "full" files, the first choice is always the right choice, so the accuracy would be 1."""
        right = []
        for scores, example in zip(self._by_example(split, predictions), split.examples, strict=True):
            best = {example.choices[number] for number in np.flatnonzero(scores == scores.max())}
            right.append(best == {example.choices[example.label]})
        return {"accuracy": float(np.mean(right)) if np.all(np.isfinite(predictions)) else float("nan")}

    def baseline(self, split: Split) -> ConstantAnswer | None:
        """Returns the constant answer, the right choice's most frequent index; None if this index never varies."""
        counts = np.bincount([example.label for example in split.examples])
        if np.count_nonzero(counts) == 1:
            return None
        return ConstantAnswer(f"choice {counts.argmax()}", {"accuracy": float(counts.max() / counts.sum())})

    def only_answer(self, split: Split, predictions: np.ndarray) -> str:
        """Returns the name of the choice, such as "choice 0", that is predicted for every example; see `Task`."""
        answers = {int(np.argmax(scores)) for scores in self._by_example(split, predictions)}
        is_one = len(answers) == 1 and len({example.label for example in split.examples}) > 1
        return f"choice {answers.pop()}" if is_one else ""

    def write_evaluation(
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """Writes `dev_predictions.jsonl` for the report; see `evaluation_file`."""
        if not np.all(np.isfinite(predictions)):
            return
        entries = []
        for index, (example, answer) in enumerate(zip(split.examples, self._answers(split, predictions), strict=True)):
            loss = -float(np.log(max(answer["probabilities"][example.label], 1e-45)))
            texts = {"index": index, "text_a": example.context, "text_b": example.start}
            entries.append(texts | answer | {"choices": example.choices, "label": example.label, "loss": loss})
        evaluation_file.write(folder, entries, prefix)

    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes two files with one line per example. `test_results.tsv` contains the probabilities of the choices.
        `test_predictions.jsonl` also contains the example's id (or its index, if it has no id), the index of the
        predicted choice, and the text of this choice. Indices start at 0."""
        tables, lines = [], []
        for number, (example, answer) in enumerate(zip(split.examples, self._answers(split, predictions), strict=True)):
            best, probabilities = answer["prediction"], answer["probabilities"]
            named = {"id": example.id or str(number), "prediction": best}
            named |= {"choice": example.choices[best], "probabilities": probabilities}
            tables.append("\t".join(map(repr, probabilities)) + "\n")
            lines.append(json.dumps(named, ensure_ascii=False) + "\n")
        paths = [os.path.join(folder, name) for name in ("test_results.tsv", "test_predictions.jsonl")]
        for path, text in zip(paths, (tables, lines), strict=True):
            storage.write_text(path, "".join(text))
        return paths

    def training_flops(self, config: BertConfig, length: int, examples: int = 1) -> int:
        whole = flops.training_flops(config, length, outputs=1, examples=examples)
        return whole - flops.unread_position_flops(config, length, examples)

    def _by_example(self, split: Split, predictions: np.ndarray) -> list[np.ndarray]:
        return np.split(predictions[:, 0].astype(np.float64), np.cumsum(self.rows_per_example(split))[:-1])

    def _answers(self, split: Split, predictions: np.ndarray) -> list[dict]:
        """Returns, for each example, the index of the best choice and the probabilities of all choices."""
        answers = []
        for scores in self._by_example(split, predictions):
            chances = np.exp(scores - scores.max())
            answers.append({"prediction": int(np.argmax(scores)), "probabilities": (chances / chances.sum()).tolist()})
        return answers


def _example(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the number of each row's example in the batch, int32 [B]."""
    return tf.cumsum(tf.cast(batch["choice_ids"] == 0, tf.int32)) - 1


def _sum(values: tf.Tensor, example: tf.Tensor) -> tf.Tensor:
    """Returns for each row the sum of the values of its example's rows, [B]."""
    count = example.shape[0] or tf.shape(example)[0]
    return tf.gather(tf.math.unsorted_segment_sum(values, example, count), example)


def _softmax_terms(scores: tf.Tensor, example: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns two tensors [B] whose difference is the logarithm of each choice's probability in its example. The first
    is the difference between a score and the best score of its example."""
    count = example.shape[0] or tf.shape(example)[0]
    best = tf.stop_gradient(tf.math.unsorted_segment_max(scores, example, count))
    below = scores - tf.gather(best, example)
    return below, tf.math.log(_sum(tf.exp(below), example))
