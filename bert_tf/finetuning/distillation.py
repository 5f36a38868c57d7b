"""Distillation: a model learns the outputs of a trained model, its teacher, besides the labels or instead of them.

Papers: G. Hinton et al., "Distilling the Knowledge in a Neural Network", 2015; I. Turc et al., "Well-Read Students
Learn Better", 2019, whose students also learn the teacher's outputs for unlabeled texts.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.core import identity, storage
from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies, workarounds
from bert_tf.finetuning.batches import one_pass
from bert_tf.finetuning.evaluation import evaluate_rows
from bert_tf.finetuning.model import FineTunedBert, FineTuningObjective
from bert_tf.finetuning.stored_rows import StoredRows
from bert_tf.finetuning.task import Split, Task, encoded_split
from bert_tf.tokenization import BertTokenizer

# The folder in the run's folder with the teacher's outputs.
FOLDER = "teacher"
# The file in the run's folder with the teacher's scores on the dev data.
NAME = "teacher.json"
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Teacher:
    """A trained model whose outputs a student learns."""

    source: str  # the value of `--teacher`
    task: Task  # the teacher's task, without data
    tokenizer: BertTokenizer  # the teacher's own tokenizer
    max_seq_length: int  # maximum number of tokens in a row of the teacher
    weights: str  # hash of the teacher's weights
    size: int  # number of the teacher's weights
    load: Callable[[], FineTunedBert]  # function that returns the model
    # the scores on the dev data, which all trials of a sweep share; empty before the first evaluation
    dev_scores: dict[str, float] = dataclasses.field(default_factory=dict)


def check_teacher(task: Task, teacher: Task, source: str) -> None:
    """Raises InputError if a model of a task cannot learn the outputs of a model of the task `teacher`."""
    if teacher.kind != task.kind:
        raise InputError(f"--teacher={source}: was trained for {teacher.kind}, not for {task.kind}; give a model of "
                         "the same kind")  # fmt: skip
    if set(teacher.labels) != set(task.labels):
        raise InputError(
            f"--teacher={source}: has the labels {', '.join(sorted(teacher.labels))}, but the data has "
            f"{', '.join(sorted(task.labels))}; give a model with the same labels"
        )
    reads_pairs = teacher.parameters.get("has_pairs")
    if reads_pairs != task.parameters.get("has_pairs"):
        raise InputError(f"--teacher={source}: was trained on {'pairs' if reads_pairs else 'single texts'}; give a "
                         "model for the same texts")  # fmt: skip


def encoded(
    task: Task, labeled: Sequence[Any], unlabeled: Sequence[Any], tokenizer: BertTokenizer, max_seq_length: int
) -> Split:
    """Encodes labeled and unlabeled examples; the column `is_labeled`, float32 [N], is 0 for unlabeled rows. Without
    unlabeled examples, there is no such column."""
    split = encoded_split(task, labeled, tokenizer, max_seq_length)
    if not unlabeled:
        return split
    more = encoded_split(task, unlabeled, tokenizer, max_seq_length)
    columns = {name: tf.concat([column, more.columns[name]], 0) for name, column in split.columns.items()}
    return dataclasses.replace(
        split,
        examples=[*split.examples, *more.examples],
        columns=columns | {"is_labeled": tf.repeat([1.0, 0.0], [len(split), len(more)])},
        example_ids=np.concatenate([split.example_ids, more.example_ids + len(split.examples)]),
        lengths=np.concatenate([split.lengths, more.lengths]),
    )


def with_teacher_outputs(
    split: Split, count: int, task: Task, teacher: Teacher, folder: str, strategy: tf.distribute.Strategy
) -> Split:
    """Returns a split with the teacher's outputs for its rows; reuses outputs that are already on disk.
    `split`: the student's split; the first `count` examples are labeled.
    `folder`: folder for the file with the outputs."""
    taught = encoded(
        teacher.task, split.examples[:count], split.examples[count:], teacher.tokenizer, teacher.max_seq_length
    )
    facts = {
        "version": _VERSION,
        "weights": teacher.weights,
        "task": teacher.task.kind,
        "parameters": dict(teacher.task.parameters),
        "max_seq_length": teacher.max_seq_length,
        "dtype": keras.mixed_precision.global_policy().name,
        "teacher's rows": taught.digest(),
        "rows": split.digest(),
    }
    path, counts = os.path.join(folder, f"{identity.id_of(facts)}.npy"), task.output_counts(split)
    if tf.io.gfile.exists(path):
        logging.info("the teacher's outputs are already in %s, and are not computed again", path)
    else:
        logging.info("computing the outputs of %s once for %d rows", teacher.source, len(taught))
        with workarounds.released_graphs():
            outputs = _outputs(teacher, taught, teacher.task.distillation.outputs, strategy)
        values = task.distillation.of_rows(split, teacher.task, taught, outputs)
        if task.labels:
            values = values[:, [teacher.task.labels.index(label) for label in task.labels]]
        if len(values) != counts.sum():
            raise InputError(
                f"--teacher={teacher.source}: reads {len(values)} values where the student reads "
                f"{counts.sum()}; the data has texts without tokens, remove them"
            )
        tf.io.gfile.makedirs(folder)
        with storage.atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
            np.save(file, values.astype(np.float32))
    return dataclasses.replace(split, teacher_outputs=StoredRows.open(path, counts, np.float32))


def record_scores(
    folder: str, teacher: Teacher, examples: Sequence[Any], student: FineTunedBert, strategy: tf.distribute.Strategy
) -> None:
    """Evaluates the teacher on the dev data, and writes `teacher.json` for the report of the student's run."""
    task = teacher.task
    if not teacher.dev_scores:
        split = encoded_split(task, examples, teacher.tokenizer, teacher.max_seq_length)
        with workarounds.released_graphs():
            outputs = _outputs(teacher, split, task.prediction, strategy)
        teacher.dev_scores.update(task.scores(*task.by_example(split, outputs)))
    sizes = {"teacher_weights": teacher.size, "student_weights": student.num_weights}
    if strategies.is_chief(strategy):
        entries = {"teacher": teacher.source, **sizes, "scores": teacher.dev_scores}
        storage.write_json(os.path.join(folder, NAME), entries)


def _outputs(teacher: Teacher, split: Split, of_logits: Callable, strategy: tf.distribute.Strategy) -> np.ndarray:
    """Returns what a function such as `Task.prediction` makes of the teacher's logits, [N, ...]."""
    with strategy.scope():
        model = teacher.load()
    packed_for = None if teacher.task.activations_dir else model.config
    _, make_batches = one_pass(split, teacher.task, teacher.tokenizer, teacher.max_seq_length, strategy, packed_for)
    objective, what = FineTuningObjective(model, teacher.task), "computing the teacher's outputs"
    outputs, _ = evaluate_rows(objective, of_logits, strategy, make_batches, len(split), what=what)
    return outputs
