"""The task of predicting a class, a score or a set of labels for one or two texts.

Paper: section 3.2, Figure 4 (a) and (b); section 4.1.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.config import BertConfig, require_segments
from bert_tf.core import storage
from bert_tf.core.errors import InputError
from bert_tf.finetuning.task import ConstantAnswer, Distillation, Encoded, Split, Task, tokenize
from bert_tf.finetuning.task_data import NO_DATA, TaskData
from bert_tf.modeling.heads import ClassificationHead
from bert_tf.settings import FineTuningSettings
from bert_tf.tasks import evaluation_file, example_checks
from bert_tf.tasks.classification.answers import Answers
from bert_tf.tasks.classification.example import MULTI_LABEL, Example, label_counts
from bert_tf.tasks.classification.reading import READ_AS_IN_THE_PAPER, LongTextRule
from bert_tf.tasks.classification.settings import IN_MEMORY, OWN_DATA
from bert_tf.text.packing import TRUNCATE
from bert_tf.tokenization import BertTokenizer
from bert_tf.training import flops
from bert_tf.training.metrics import Metric

# Warn if the largest class has at least this share of the examples. A constant answer then has an accuracy of at least
# this share.
_LARGE_SHARE = 0.9


def make_head(
    labels: Sequence[str], config: BertConfig, reading: LongTextRule = READ_AS_IN_THE_PAPER
) -> ClassificationHead:
    """Returns a head with one output for each label; for a regression, returns a head with one output."""
    return ClassificationHead(config, len(labels) or 1, reading.pooling, reading.has_both_orders)


@dataclasses.dataclass(frozen=True)
class ClassificationTask(Task):
    """A task on one or two texts."""

    name: str  # the value of `--task_name`
    answers: Answers  # the labels, the loss and the scores
    has_pairs: bool = False  # whether an example has two texts
    data: TaskData = NO_DATA  # see `Task`. The examples are `Example`.
    reading: LongTextRule = READ_AS_IN_THE_PAPER  # the treatment of long texts, and the vector that the head reads
    # title of the column with the examples' ids in `test_predictions.tsv`; "index" if there are no ids
    id_title: str = "index"
    writes_texts: bool = False  # whether `test_predictions.tsv` contains the texts
    # function that writes the files of a benchmark's server, and returns their paths. Its arguments are the folder, the
    # examples of the test data and the outputs. None if there is no server.
    submit: Callable[[str, Sequence[Example], np.ndarray], list[str]] | None = None

    @property
    def kind(self) -> str:
        return self.answers.kind

    @property
    def labels(self) -> tuple[str, ...]:
        return self.answers.labels

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"has_pairs": self.has_pairs, **self.reading.parameters, **self.answers.parameters}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.answers.metrics

    def check(self, config: BertConfig, settings: FineTuningSettings) -> None:
        """Refuses pairs of texts for a model without a second segment, and windows that would skip text."""
        if self.has_pairs:
            require_segments(config, settings.bert_config_file)
        elif self.reading.has_both_orders:
            raise InputError("--pair_order=both: the examples have only one text; drop the flag")
        stride, room = self.reading.window_stride, settings.max_seq_length - 2
        if self.reading.has_windows and stride > room:
            raise InputError(
                f"--window_stride={stride}: with --max_seq_length={settings.max_seq_length} a window has {room} tokens "
                "of text, so the tokens between two windows would be lost; give a smaller stride"
            )

    @property
    def truncation_remedies(self) -> Sequence[str] | None:
        return ("--long_text=window", "--long_text=head_tail") if self.reading.long_text == TRUNCATE else None

    def is_labeled(self, examples: Sequence[Example]) -> bool:
        return self.answers.is_labeled([example.label for example in examples])

    def check_examples(self, examples: Mapping[str, Sequence[Example]]) -> None:
        """See `Task`. The examples of benchmarks are not checked, because users cannot change them."""
        if self.name not in (OWN_DATA, IN_MEMORY):
            return
        example_checks.warn_of_texts(examples)
        if self.kind == MULTI_LABEL and "train" in examples:
            _warn_of_unseen(examples, self.labels)
        elif self.labels:
            _check_classes(examples, self.labels, "class_weights" in self.parameters)

    def encode(self, examples: Sequence[Example], tokenizer: BertTokenizer, max_seq_length: int) -> Encoded:
        """Tokenizes examples. Returns the columns:
        - `segment_a`: int32 [N, (tokens)], the token ids of the first or only text.
        - `segment_b`: int32 [N, (tokens)], the token ids of the second text; only for pairs.
        - `label_ids`: float32 [N], the ids of the classes, or the scores; 0 for unknown labels. For sets of labels,
          float32 [N, C], 1 for each label that an example has.
        - `example_ids`, `row_shares`, `order_ids`: see `LongTextRule.rows`; only for examples with several rows."""
        columns = {"segment_a": tokenize([e.text_a for e in examples], tokenizer)}
        if self.has_pairs:
            columns["segment_b"] = tokenize([e.text_b for e in examples], tokenizer)
        columns["label_ids"] = self.targets(examples)
        rules = tokenizer.rules
        return self.reading.rows(columns, max_seq_length, rules.truncation_side, rules.separators)

    def targets(self, examples: Sequence[Example]) -> np.ndarray:
        """Returns the labels as the numbers that the model learns, float32 [N] or [N, C]; see `Answers`."""
        return np.array([self.answers.target(example.label) for example in examples], np.float32)

    def model_inputs(self, columns: Encoded, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        return self.reading.model_inputs(columns, tokenizer, max_seq_length)

    def head(self, config: BertConfig) -> keras.layers.Layer:
        return make_head(self.labels, config, self.reading)

    def weights(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the weights of rows, float32 [B]; the weights of an example's rows add up to 1."""
        weights = batch["row_weights"]
        return weights * batch["row_shares"] if self.reading.has_several_rows else weights

    def rows_per_example(self, split: Split) -> np.ndarray | None:
        """Returns 2 for each example if its rows are the two orders of a pair, int [G], else None; see `Task`."""
        return np.bincount(split.example_ids) if self.reading.has_both_orders else None

    def losses(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return self.answers.losses(logits, batch["label_ids"])

    @property
    def distillation(self) -> Distillation:
        """See `Task`. All rows of an example have the mean of the teacher's outputs for the example's rows."""
        return Distillation(
            lambda teacher, logits, temperature, _: self.answers.teacher_losses(teacher, logits, temperature),
            self.weights,
            self.prediction,
            lambda split, teacher, taught, outputs: teacher.by_example(taught, outputs)[1][split.example_ids],
        )

    def prediction(self, logits: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return self.answers.outputs(logits)

    def by_example(self, split: Split, predictions: np.ndarray) -> tuple[Split, np.ndarray]:
        """Averages the logits of each example's rows; see `LongTextRule.by_example`."""
        return self.reading.by_example(split, predictions)

    def scores(self, split: Split, predictions: np.ndarray) -> dict[str, float]:
        """Computes the task's scores, and the scores of each group, whose names end with the name of the group. The
        task's scores are computed from the examples without a group. If each example has a group, they are computed
        from all examples."""
        targets, groups = split.columns["label_ids"].numpy(), np.array([example.group for example in split.examples])
        main = (groups == "") | np.all(groups != "")
        scores = self.answers.scores(targets[main], predictions[main])
        for group in filter(None, dict.fromkeys(groups.tolist())):
            part = self.answers.scores(targets[groups == group], predictions[groups == group])
            scores |= {f"{name}_{group}": value for name, value in part.items()}
        return scores

    def baseline(self, split: Split) -> ConstantAnswer:
        answer, outputs = self.answers.constant(split.columns["label_ids"].numpy())
        return ConstantAnswer(answer, self.scores(split, outputs))

    def only_answer(self, split: Split, predictions: np.ndarray) -> str:
        return self.answers.only_answer(split.columns["label_ids"].numpy(), predictions)

    @property
    def tuned(self) -> Any:
        return self.answers.tuned

    def without_tuning(self, folder: str) -> "ClassificationTask":
        return dataclasses.replace(self, answers=self.answers.without_tuning(folder))

    def write_evaluation(
        self, folder: str, split: Split, predictions: np.ndarray, step: int | None, prefix: str = "dev"
    ) -> None:
        """Writes `dev_predictions.jsonl` for the report, and the files of the answers; see `evaluation_file`."""
        targets = split.columns["label_ids"].numpy()
        if np.all(np.isfinite(predictions)):
            lines = self.answers.lines(targets, predictions.astype(np.float64))
            rows = zip(split.example_ids.tolist(), split.examples, lines, strict=True)
            entries = [
                {"index": index, **dict(zip(("text_a", "text_b"), example.texts, strict=False)), **line}
                for index, example, line in rows
                if example.label is not None
            ]
            evaluation_file.write(folder, entries, prefix)
        self.answers.write(folder, targets, predictions, step)

    def check_checkpoint(self, folder: str, step: int | None) -> None:
        self.answers.check_checkpoint(folder, step)

    def write_predictions(self, folder: str, split: Split, predictions: np.ndarray) -> list[str]:
        """Writes two files with one line per example, and the files of a benchmark's server. `test_results.tsv`
        contains the probabilities of the classes, or the score, in the format of google-research/bert.
        `test_predictions.tsv` has a header, and also contains the answer and the example's id. If an example has no id,
        the file contains the example's index, counted from 0."""
        titles, answers, numbers = self.answers.table(predictions, folder)
        results = [list(map(repr, row.tolist())) for row in numbers]
        has_ids = any(example.id for example in split.examples)
        named = [[_cell(self.id_title) if has_ids else "index", *titles]]
        for number, (row, example) in enumerate(zip(results, split.examples, strict=True)):
            named.append([_cell(example.id or str(number)), *answers[number : number + 1], *row])
        if self.writes_texts:
            texts = [("text_a", "text_b") if self.has_pairs else ("text",), *(e.texts for e in split.examples)]
            named = [[*row, *map(_cell, more)] for row, more in zip(named, texts, strict=True)]
        paths = [os.path.join(folder, name) for name in ("test_results.tsv", "test_predictions.tsv")]
        for path, lines in zip(paths, (results, named), strict=True):
            storage.write_text(path, "".join("\t".join(line) + "\n" for line in lines))
        return paths + (self.submit(folder, split.examples, predictions) if self.submit else [])

    def training_flops(self, config: BertConfig, length: int, examples: int = 1) -> int:
        whole = flops.training_flops(config, length, outputs=len(self.labels) or 1, examples=examples)
        if self.reading.pooling != "cls":
            return whole
        return whole - flops.unread_position_flops(config, length, examples)


def _check_classes(examples: Mapping[str, Sequence[Example]], labels: Sequence[str], is_weighted: bool) -> None:
    """Checks the classes in train and dev for a task with one label per example."""
    counts = label_counts(example.label for example in examples.get("train", ()))
    if not counts:
        return
    if len(counts) == 1:
        raise InputError(f"train: every example has the label {next(iter(counts))!r}; add examples of another label")
    _warn_of_unseen(examples, labels)
    label, most = counts.most_common(1)[0]
    if most >= _LARGE_SHARE * counts.total() and not is_weighted:
        logging.warning("train: %.1f%% of the examples have the label %r; look at macro_f1 rather than accuracy, or "
                        "give --class_weights=balanced", 100 * most / counts.total(), label)  # fmt: skip


def _warn_of_unseen(examples: Mapping[str, Sequence[Example]], labels: Iterable[str]) -> None:
    """Warns about labels that no training example has; the warning counts the dev examples with these labels."""
    counts, dev = (label_counts(each.label for each in examples.get(split, ())) for split in ("train", "dev"))
    unseen = [label for label in labels if not counts[label]]
    if unseen:
        logging.warning("no example of train has the label %s; %d examples of dev have such a label",
                        " or ".join(unseen), sum(dev[label] for label in unseen))  # fmt: skip


def _cell(text: str) -> str:
    """Returns a text as a cell of a tab-separated table; adds quotes if the text could be misread without quotes."""
    needs_quotes = text.startswith('"') or any(character in text for character in "\t\n\r")
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text
