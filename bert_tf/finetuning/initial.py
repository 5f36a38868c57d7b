"""Checks the initial checkpoint of a task's model, and maps the outputs of its head to the task's labels."""

from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats import hugging_face, names
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig
from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.task import Task

# Maximum number of labels in a message.
_MOST_LISTED = 10


def check_initial_of_task(
    path: str,
    task: Task,
    config: BertConfig,
    reinitialize_head: bool,
    make_head: Callable[[BertConfig], keras.layers.Layer] | None = None,
    transfer_layers: int | None = None,
) -> OpenCheckpoint:
    """Refuses a checkpoint that cannot initialize a task's model; warns if the head was trained on other labels. The
    checkpoint's head is used if it has the right number of classes, even if it was trained on another task. If the
    checkpoint and the task have the same label names, each label keeps the output that was trained for this label; see
    `adapted`.
    `path`: a checkpoint in any supported format.
    `reinitialize_head`: whether to ignore the checkpoint's head.
    `make_head`: function that returns the model's head; None for the task's head.
    `transfer_layers`: see `checkpoints.initialize`."""
    if reinitialize_head:
        return checkpoints.check_initial(path, config, transfer_layers=transfer_layers)
    with tf.Graph().as_default():  # a graph computes only the shapes, not the weights
        head = (make_head or task.head)(config)
        part = getattr(head, "checkpoint_name", "head")
        variables = checkpoints.variables_by_path(head).items()
        shapes = {f"{part}/{name}": tuple(variable.shape) for name, variable in variables}
    contents = checkpoints.check_initial(path, config, head_shapes=shapes, transfer_layers=transfer_layers)
    if not contents.has_bilstm_unlike(shapes):  # else the checkpoint's head is not used
        _warn_of_other_head(contents, task, part)
    return contents


def _warn_of_other_head(contents: OpenCheckpoint, task: Task, part: str) -> None:
    if not has_head(contents, part):
        return
    folder = contents.folder
    trained = description.read(folder) if description.exists(folder) else None
    pooling, wanted = (of.parameters.get("pooling", "cls") for of in (trained or task, task))
    if pooling != wanted:
        logging.warning(
            "the head was trained with --pooling=%s, but is now used with %s; --reinitialize_head makes a new head",
            pooling, wanted,
        )  # fmt: skip
    labels = _labels_of(contents, part)
    if not labels and task.labels:
        logging.warning(
            "%s: does not name the outputs of its head, so they are taken in the order %s; if this order is wrong, "
            "give the right one with --labels, or make a new head with --reinitialize_head",
            contents.source, _listed(task.labels),
        )  # fmt: skip
    if len(labels) != len(task.labels) or labels == tuple(task.labels):
        return
    if sorted(labels) == sorted(task.labels):
        logging.info("%s: the head has the labels in another order; they are matched by name", contents.source)
    else:
        logging.warning(
            "%s: the head was trained with the labels %s, but is now used for %s; --reinitialize_head makes a new head",
            contents.source, _listed(labels), _listed(task.labels),
        )  # fmt: skip


def adapted(contents: OpenCheckpoint, task: Task | TaskDescription, head: str) -> OpenCheckpoint:
    """Returns a checkpoint whose head gives a task's outputs: its labels in their order, or scores on its scale. If the
    label names of the checkpoint are unknown or differ from the task's labels, the order of the outputs is kept. A
    regression on a user's data learns standardized scores; the outputs of other projects are the scores themselves."""
    labels = _labels_of(contents, head)
    if labels != tuple(task.labels) and sorted(labels) == sorted(task.labels):
        contents = contents.with_outputs([labels.index(label) for label in task.labels])
    trained = description.read(contents.folder) if description.exists(contents.folder) else None
    mean, deviation = description.score_scale(trained.parameters if trained else {})
    new_mean, new_deviation = description.score_scale(task.parameters)
    return contents.with_rescaled_output(deviation / new_deviation, (mean - new_mean) / new_deviation)


def _labels_of(contents: OpenCheckpoint, head: str) -> tuple[str, ...]:
    """Returns the names of a checkpoint's classes in the order of the head's outputs; () if the names are unknown."""
    if not has_head(contents, head):
        return ()
    folder = contents.folder
    if description.exists(folder):
        return tuple(description.read(folder).labels)
    entries = checkpoint_tokenizer.read_conversion(folder).get(hugging_face.ENTRIES, {}) | (
        hugging_face.read_task_entries(contents)
    )
    by_id = entries.get("id2label", {})
    labels = tuple(str(by_id.get(str(number), "")) for number in range(len(by_id)))
    # Hugging Face's library calls the labels LABEL_0, LABEL_1, ... if a model has no label names.
    return () if all(label in ("", f"LABEL_{number}") for number, label in enumerate(labels)) else labels


def has_head(contents: OpenCheckpoint, head: str) -> bool:
    return head in names.heads_in([*contents.tensors, *contents.own_heads])


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels[:_MOST_LISTED]) + ", ..." * (len(labels) > _MOST_LISTED)
