"""Trains several classification tasks together, with one encoder and a head for each task.

Letters: B rows of a batch, N rows of a split.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.finetuning.task import Columns, ConstantAnswer, Split, Task
from bert_tf.modeling.heads import ClassificationHead
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks.classification.classification_task import CLASSIFICATION, REGRESSION, ClassificationTask, Example
from bert_tf.tokenization import BertTokenizer
from bert_tf.training.metrics import Metric


class JointHead(ClassificationHead):
    """The main task's head and the heads of the other tasks.

    In a checkpoint, the main head's weights have the same names as in training without other tasks. Therefore,
    evaluation, export and conversion read the main head as usual, and ignore the other heads.
    """

    def __init__(self, config: BertConfig, num_outputs: Sequence[int], pooling: str = "cls", **kwargs):
        super().__init__(config, num_outputs[0], pooling, **kwargs)
        self.joint = [ClassificationHead(config, outputs, pooling) for outputs in num_outputs[1:]]

    def call(self, x, input_mask=None, training=False, seed=None):
        """Maps the inputs of `ClassificationHead` to the logits of all tasks, float32 [B, sum of outputs]."""
        logits = super().call(x, input_mask, training=training, seed=seed)
        others = [head(x, input_mask, training=training, seed=seed) for head in self.joint]
        return tf.concat([logits, *others], axis=-1)


@dataclasses.dataclass(frozen=True)
class JointTask(Task):
    """A main task that is trained together with other tasks. Evaluation and prediction use only the main task.

    Training reads the rows of all tasks in one random order. On average, the number of a task's rows in a batch is
    proportional to the size of the task's training data.

    Attributes:
      main: the task that is evaluated, predicted and exported.
      others: the tasks that are trained with the main task.
    """

    main: ClassificationTask
    others: tuple[ClassificationTask, ...]

    @property
    def kind(self) -> str:
        """See `Task`."""
        return self.main.kind

    @property
    def name(self) -> str:
        """See `Task`."""
        return self.main.name

    @property
    def labels(self) -> tuple[str, ...]:
        """See `Task`."""
        return self.main.labels

    @property
    def parameters(self) -> Mapping[str, Any]:
        """See `Task`."""
        return self.main.parameters

    @property
    def truncation_remedies(self) -> Sequence[str] | None:
        """See `Task`."""
        return self.main.truncation_remedies

    @property
    def row_length(self) -> int | None:
        """See `Task`."""
        return self.main.row_length

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The loss, and other metrics that all tasks have."""
        return tuple(m for m in self.main.metrics if all(m in task.metrics for task in self.others))

    @property
    def _tasks(self) -> tuple[ClassificationTask, ...]:
        return (self.main, *self.others)

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:
        """See `Task`."""
        for task in self._tasks:
            task.check(config, settings)

    def data_facts(self) -> dict[str, Any]:
        """Returns the facts of the main task, and the names and facts of the other tasks."""
        return self.main.data_facts() | {"joint_tasks": [{"name": t.name, **t.data_facts()} for t in self.others]}

    def files_of(self, split: str) -> list[str]:
        """See `Task`."""
        tasks = self._tasks if split == "train" else (self.main,)
        return [path for task in tasks for path in task.files(split)]

    def fingerprint_of(self, split: str) -> list[str]:
        """See `Task`."""
        tasks = self._tasks if split == "train" else (self.main,)
        return [entry for task in tasks for entry in task.fingerprint(split)]

    def read_files(self, split: str) -> list[Example]:
        """Reads the training data of all tasks, one task after the other; for dev and test, reads the main task's data.

        Raises:
          InputError: a file is invalid; the message names the file and the line.
        """
        if split != "train":
            return self.main.read(split)
        return [_JointExample(**vars(e), task_id=i) for i, task in enumerate(self._tasks) for e in task.read(split)]

    def encode(self, examples: Sequence[Example], tokenizer: BertTokenizer, max_seq_length: int) -> Columns:
        """Tokenizes examples in the order of `read`.

        Returns:
          The columns:

          - `segment_a`: int32 [N, (tokens)], the token ids of the first or only text.
          - `segment_b`: int32 [N, (tokens)], the token ids of the second text; empty for single texts.
          - `label_ids`: float32 [N], see `ClassificationTask.encode`.
          - `example_ids`: int64 [N], index of the row's example.
          - `task_ids`: int32 [N], index of the row's task; 0 for the main task.
          - `window_weights`: see `Reading.rows`; only with windows.
        """
        parts, task_ids = [], np.array([getattr(example, "task_id", 0) for example in examples], np.int32)
        for number, task in enumerate(self._tasks):
            own = [example for example, task_id in zip(examples, task_ids, strict=True) if task_id == number]
            if own:
                columns = dict(task.encode(own, tokenizer, max_seq_length))
                rows = columns["segment_a"].nrows()
                columns.setdefault("segment_b", _empty_rows(rows))
                # The task's own `example_ids` count only the examples of this task.
                within = columns.get("example_ids", tf.range(rows))
                columns["example_ids"] = tf.cast(within, tf.int64) + sum(np.asarray(task_ids) < number)
                columns["task_ids"] = tf.fill([rows], number)
                parts.append(columns)
        return {name: tf.concat([part[name] for part in parts], axis=0) for name in parts[0]}

    def model_inputs(self, columns: Columns, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        """See `Reading.model_inputs`. A row with an empty `segment_b` has one text."""
        return self.main.model_inputs(columns, tokenizer, max_seq_length)

    def head(self, config: BertConfig) -> keras.layers.Layer:
        """See `JointHead`."""
        outputs = [len(task.labels) or 1 for task in self._tasks]
        return JointHead(config, outputs, self.main.reading.pooling)

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """See `Task`. All tasks read long texts in the same way."""
        return self.main.weights(batch)

    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the loss and the metrics of each row for the row's own task, from the logits of all tasks."""
        total: dict[str, tf.Tensor] = {}
        for number, (task, own_logits) in enumerate(zip(self._tasks, self._split(logits), strict=True)):
            is_own = batch["task_ids"] == number
            # Rows of other tasks get the label 0, which is valid in every task. The losses of these rows are not used.
            labels = tf.where(is_own, batch["label_ids"], 0.0)
            for name, value in task.losses(own_logits, {**batch, "label_ids": labels}).items():
                own = tf.where(is_own, value, 0.0)
                total[name] = total[name] + own if name in total else own
        return {metric.name: total[metric.name] for metric in self.metrics}

    def _split(self, logits: tf.Tensor) -> list[tf.Tensor]:
        return tf.split(logits, [len(task.labels) or 1 for task in self._tasks], axis=-1)

    def prediction(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """See `Task`. Evaluation and prediction read only rows of the main task."""
        return self.main.prediction(self._split(logits)[0], batch)

    def by_example(self, split: Split, predictions: np.ndarray) -> tuple[Split, np.ndarray]:
        """See `Task`."""
        return self.main.by_example(split, predictions)

    def data_name_of(self, split: str) -> str:
        """See `Task`."""
        return super().data_name_of(split) if split == "train" else self.main.data_name(split)

    def is_labeled(self, examples: Sequence[Example]) -> bool:
        """See `Task`."""
        return self.main.is_labeled(examples)

    def baseline(self, split: Split) -> ConstantAnswer:
        """See `Task`."""
        return self.main.baseline(split)

    def only_answer(self, split: Split, predictions: np.ndarray) -> str:
        """See `Task`."""
        return self.main.only_answer(split, predictions)

    def keep_evaluation(
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """See `Task`."""
        self.main.keep_evaluation(folder, split, predictions, step, prefix)

    def check_examples(self, examples: Mapping[str, Sequence[Example]]) -> None:
        """See `Task`. Checks only the examples of the main task."""
        own = {split: [e for e in read if not getattr(e, "task_id", 0)] for split, read in examples.items()}
        self.main.check_examples(own)

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """See `Task`."""
        return self.main.scores(split, predictions)

    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """See `Task`."""
        return self.main.write_predictions(folder, split, predictions)

    def overwrites(self, name: str) -> bool:
        """See `Task`."""
        return self.main.overwrites(name)

    def training_flops(self, config: BertConfig, length: int, examples: int = 1) -> int:
        """See `Task`."""
        return self.main.training_flops(config, length, examples)


@dataclasses.dataclass(frozen=True)
class _JointExample(Example):
    """A training example with the index of its task; the index of the main task is 0."""

    task_id: int = 0


def check_joint(main: ClassificationTask, others: Sequence[ClassificationTask]) -> None:
    """Refuses tasks that cannot be trained together.

    Raises:
      InputError: the main task has neither classes nor scores, or a task is listed twice.
    """
    if main.kind not in (CLASSIFICATION, REGRESSION):
        raise InputError(f"--joint_tasks: {main.name} is not a task with classes or scores; train it alone")
    names = [task.name for task in (main, *others)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise InputError(
            f"--joint_tasks: {twice} is listed twice; list each task once, and leave out the task of --task_name"
        )


def _empty_rows(count: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), tf.zeros([count], tf.int64))
