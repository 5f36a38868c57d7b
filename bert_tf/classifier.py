"""A text classifier for Python programs: trains on lists of texts, evaluates, predicts, saves, loads and exports.

Paper: section 4.1. The model, the settings and the folder are the same as for `run_classifier`.
"""

import contextlib
import dataclasses
import math
import numbers
import os
import weakref
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import conversion, report
from bert_tf.core.command_line import of_keywords
from bert_tf.core.errors import InputError
from bert_tf.core.progress_bar import ProgressBar
from bert_tf.finetuning.dev_share import check_dev
from bert_tf.finetuning.engine import run_finetuning
from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import Split
from bert_tf.finished_run import FinishedRun
from bert_tf.modeling.precision import policy
from bert_tf.tasks.classification.example import MULTI_LABEL, REGRESSION, Example
from bert_tf.tasks.classification.find import find_task
from bert_tf.tasks.classification.kind import answers_of
from bert_tf.tasks.classification.memory_source import evaluation_source, examples_of, memory_source
from bert_tf.tasks.classification.reading import LongTextRule
from bert_tf.tasks.classification.settings import IN_MEMORY, ClassifierSettings

# With fewer texts than _FEW_TEXTS, a batch has _SMALL_BATCH texts, and there are enough epochs for _ENOUGH_STEPS steps.
_FEW_TEXTS, _SMALL_BATCH, _ENOUGH_STEPS = 1000, 8, 200


class TextClassifier(FinishedRun):
    """A trained classifier or regression model for texts or pairs of texts, with one or several labels per text.

    Attributes:
      folder: see `FinishedRun`.
      scores: see `FinishedRun`.
      labels: names of the classes; () for a regression.
    """

    def __init__(
        self, folder: str, scores: dict[str, float] | None = None, use_checkpoint: str = "best",
        has_pairs: bool | None = None,
    ):  # fmt: skip
        # The temporary folder of a converted model exists as long as this object.
        self._files = contextlib.ExitStack()
        weakref.finalize(self, self._files.close)
        folder = self._files.enter_context(conversion.run_of(os.fspath(folder), has_pairs))
        super().__init__(folder, scores, use_checkpoint)
        described = self._trained.description
        self._answers = answers_of(described, self.folder)
        if not self._answers:
            raise InputError(f"{folder}: was trained for {described.kind}; give a classifier or a regression model")
        self.labels, self._has_pairs = tuple(described.labels), described.parameters["has_pairs"]
        self._reading = LongTextRule.of_parameters(described.parameters)
        self._step = self._trained.step
        names = ("segment_a", "segment_b") if self._has_pairs else ("segment_a",)
        self._logits = tf.function(
            self._logits_of_texts, input_signature=[{name: tf.TensorSpec([None], tf.string) for name in names}]
        )

    @classmethod
    def load(cls, folder: str, use_checkpoint: str = "best", has_pairs: bool | None = None) -> "TextClassifier":
        """Loads a classifier that `train` or `run_classifier` trained, or a classifier of another project.

        Args:
          folder: the folder of a run or a sweep, or a checkpoint of another project in any supported format.
          use_checkpoint: "best" or "last"; see `--use_checkpoint` of `run_classifier`.
          has_pairs: for a classifier of another project: whether it reads pairs of texts.

        Raises:
          InputError: the folder does not contain a finished classifier.
        """
        return cls(folder, use_checkpoint=use_checkpoint, has_pairs=has_pairs)

    @classmethod
    def train(
        cls,
        texts: Sequence[str] | Sequence[tuple[str, str]],
        labels: Sequence[str] | Sequence[int] | Sequence[float] | Sequence[Collection[str]] | str,
        checkpoint: str,
        output_dir: str,
        *,
        dev_texts: Sequence | None = None,
        dev_labels: Sequence | None = None,
        dev_share: float = 0.1,
        **settings,
    ) -> "TextClassifier":
        """Trains a classifier. After an interruption, the same call resumes the training.

        Args:
          texts: strings, or pairs of strings; or a table (a list of dicts, a dict of lists, a DataFrame of pandas or
            polars, or a Dataset of the library datasets) with the texts in the column `text`, or in `text_a` and
            `text_b`.
          labels: one entry per text. Strings and integers are names of classes, and floats are targets of a
            regression; with `regression=True`, integers are targets too. If the entries are lists, tuples or sets of
            strings, each text may have any number of labels. Or the name of a column of the table; if a Dataset
            names the classes of the column, the classifier has these names.
          checkpoint: pre-trained weights; see `--init_checkpoint` of `run_classifier`.
          output_dir: folder for checkpoints, predictions and report.
          dev_texts: texts for the evaluation; if None, the share `dev_share` of `texts` is held out from training.
          dev_labels: labels of `dev_texts`.
          dev_share: number from 0 to below 1; 0 turns off evaluation. See `--dev_share` of `run_classifier`.
          **settings: further flags of `run_classifier`, without the dashes, such as `num_train_epochs` or
            `class_weights`. With fewer than 1,000 texts, a batch has 8 texts by default, and the default number of
            epochs gives at least 200 steps.

        Returns:
          The classifier with its `scores`.

        Raises:
          InputError: texts, labels or settings are invalid, or do not match the run in the folder.
        """
        if (dev_texts is None) != (dev_labels is None):
            raise InputError("dev_texts and dev_labels: give both or neither")
        if not isinstance(dev_share, numbers.Real) or not 0 <= dev_share < 1:
            raise InputError(f"dev_share={dev_share!r}: must be at least 0 and below 1")
        has_dev = dev_texts is not None
        share = None if has_dev or not dev_share else float(dev_share)
        flags = {"task_name": IN_MEMORY, "do_train": True, "do_eval": has_dev or bool(share), "dev_share": share}
        paths = {"init_checkpoint": os.fspath(checkpoint), "output_dir": os.fspath(output_dir)}
        parsed = of_keywords(ClassifierSettings, paths | flags | settings)
        wanted = REGRESSION if parsed.regression else MULTI_LABEL if parsed.multi_label else ""
        command = Command.of(parsed)
        task = find_task(command, memory_source(texts, labels, (dev_texts, dev_labels) if has_dev else None, wanted))
        if not parsed.sweep:
            parsed = dataclasses.replace(parsed, **_for_few_texts(len(task.data.read("train")), settings))
        check_dev(command, task, "dev_texts", has_dev)
        with policy():
            scores = run_finetuning(parsed, lambda _: task, report.write, conversion.open_teacher)
        report.conclude(parsed.output_dir, scores, "predict(texts), export(folder)")
        return cls(parsed.output_dir, scores, parsed.use_checkpoint)

    def predict(self, texts: Sequence, batch_size: int = 32) -> list[str] | list[tuple[str, ...]] | np.ndarray:
        """Predicts the labels of N texts.

        Args:
          texts: strings, or pairs of strings.
          batch_size: number of texts per batch.

        Returns:
          A list of N labels (strings). For a model with several labels per text, a list of N tuples. Each tuple
          contains the labels whose probabilities are above the run's thresholds. For a regression, scores, float32 [N].

        Raises:
          InputError: a text is not a string, or is not a pair although the classifier was trained on pairs.
        """
        self._answers.check_checkpoint(self.folder, self._step)
        return self._answers.predicted(self._outputs(examples_of(texts), batch_size))

    def probabilities(self, texts: Sequence, batch_size: int = 32) -> np.ndarray:
        """Predicts the probability of each label. The arguments are the same as for `predict`.

        Returns:
          float32 [N, C]; the classes are in the order of `labels`.

        Raises:
          InputError: see `predict`; or the model is a regression.
        """
        if not self.labels:
            raise InputError(f"{self.folder}: a regression has no probabilities; call predict")
        return self._answers.probabilities(self._outputs(examples_of(texts), batch_size))

    def evaluate(self, texts: Sequence, labels: Sequence, batch_size: int = 32) -> dict[str, float]:
        """Compares predictions with labels; returns the same metrics as in `scores`, except for the loss.

        Raises:
          InputError: see `predict`; or a label is unknown, or does not have the type of the training labels; or the
            run's thresholds belong to another checkpoint.
        """
        source = evaluation_source(texts, labels, self._answers.kind, self.labels)
        settings = ClassifierSettings(task_name=IN_MEMORY, output_dir=self.folder, do_eval=True)
        task = find_task(Command.of(settings), source)
        task.check_checkpoint(self.folder, self._step)
        examples = task.data.read("dev")
        predictions = self._outputs(examples, batch_size)
        columns = {"label_ids": tf.constant(task.targets(examples))}
        return task.scores(Split(examples, columns, np.arange(len(examples))), predictions)

    def _outputs(self, examples: Sequence[Example], batch_size: int) -> np.ndarray:
        """Returns logits, or a regression's scores in the range of the training labels, float32 [N, C]."""
        if examples and (examples[0].text_b is not None) != self._has_pairs:
            raise InputError(
                f"texts: {self.folder} was trained on {'pairs' if self._has_pairs else 'single texts'}; give such texts"
            )
        parts = [np.zeros([0, len(self.labels) or 1], np.float32)]
        with ProgressBar("predicting", len(examples), "texts", compiles=True, delay=2.0) as shown:
            for start in range(0, len(examples), batch_size):
                batch = examples[start : start + batch_size]
                columns = {"segment_a": tf.constant([example.text_a for example in batch])}
                if self._has_pairs:
                    columns["segment_b"] = tf.constant([example.text_b for example in batch])
                parts.append(self._logits(columns).numpy())
                shown.update(len(batch))
        return np.asarray(self._answers.outputs(np.concatenate(parts)))

    def _logits_of_texts(self, texts: dict[str, tf.Tensor]) -> tf.Tensor:
        trained = self._trained
        length = trained.description.max_seq_length
        return self._reading.logits(texts, trained.tokenizer, length, lambda inputs: trained.model(inputs)["logits"])


def _for_few_texts(count: int, settings: Mapping) -> dict[str, int]:
    """Returns a smaller batch size and more epochs for few texts; leaves out the settings that the user gives.

    For many texts, the function returns {}.
    """
    batch_size = settings.get("train_batch_size") or _SMALL_BATCH
    epochs = max(3, math.ceil(_ENOUGH_STEPS * batch_size / count))
    changes = {"train_batch_size": batch_size, "num_train_epochs": epochs}
    changes = {name: value for name, value in changes.items() if settings.get(name) is None}
    if count >= _FEW_TEXTS or not changes:
        return {}
    chosen = ", ".join(f"{name}={value}" for name, value in changes.items())
    logging.warning(
        "only %d training texts: using %s for enough steps; give other values to override this", count, chosen
    )
    return changes
