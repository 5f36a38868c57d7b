"""What a task takes of the checkpoint that it starts from.

Letters: C classes.
"""

import os
from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats import hugging_face, names
from bert_tf.checkpoint_formats.contents import Contents
from bert_tf.config import BertConfig
from bert_tf.finetuning import description
from bert_tf.finetuning.task import Task

# Labels that a message lists.
_MOST_LISTED = 10


def check_initial(
    path: str,
    task: Task,
    config: BertConfig,
    reinitialize_head: bool,
    make_head: Callable[[BertConfig], keras.layers.Layer] | None = None,
) -> None:
    """Refuses a checkpoint that cannot initialize a task's model, and warns about a head of other labels.

    A head of as many classes as the task's is taken, whichever task it was trained on. Its outputs are matched by the
    names of the labels where those are the same; see `output_order`.

    Args:
      path: a checkpoint of any format.
      task: to train.
      config: the model's configuration.
      reinitialize_head: whether the checkpoint's head is left out.
      make_head: returns the model's head; None for the task's.

    Raises:
      InputError: see `checkpoints.check_initial`.
    """
    if reinitialize_head:
        checkpoints.check_initial(path, config)
        return
    with tf.Graph().as_default():  # the shapes alone, no weights
        head = (make_head or task.head)(config)
        part = getattr(head, "checkpoint_name", "head")
        variables = checkpoints.variables_by_path(head).items()
        shapes = {f"{part}/{name}": tuple(variable.shape) for name, variable in variables}
    contents = checkpoints.check_initial(path, config, head_shapes=shapes)
    if contents.lacks_place_for_bilstm(shapes):
        return  # its head is not taken
    folder = os.path.dirname(contents.source)
    trained = description.read(folder) if description.exists(folder) else None
    pooling, wanted = (of.parameters.get("pooling", "cls") for of in (trained or task, task))
    if pooling != wanted:
        logging.warning(
            "the head was trained with --pooling=%s and starts with %s; --reinitialize_head draws a new one",
            pooling, wanted,
        )  # fmt: skip
    labels = _labels_of(contents, part)
    if len(labels) != len(task.labels) or labels == tuple(task.labels):
        return
    if sorted(labels) == sorted(task.labels):
        logging.info("%s: its head has the labels in another order; they are matched by their names", contents.source)
    else:
        logging.warning(
            "%s: its head was trained with the labels %s and is used for %s; --reinitialize_head draws a new one",
            contents.source, _listed(labels), _listed(task.labels),
        )  # fmt: skip


def output_order(path: str, task: Task, head: str) -> list[int] | None:
    """Returns which output of a checkpoint's head is that of each label of a task, by the names of the labels.

    Args:
      path: a checkpoint of any format.
      task: with C labels.
      head: the head's name in checkpoints.

    Returns:
      C numbers; None to take the outputs as they are, because the names are unknown, different, or in the same order.
    """
    labels = _labels_of(checkpoints.open_checkpoint(path), head)
    if labels == tuple(task.labels) or sorted(labels) != sorted(task.labels):
        return None
    return [labels.index(label) for label in task.labels]


def _labels_of(contents: Contents, head: str) -> tuple[str, ...]:
    """Returns the names of a checkpoint's classes in the order of its head's outputs; () if they are unknown."""
    if head not in names.heads_in([*contents.tensors, *contents.own_heads]):
        return ()
    folder = os.path.dirname(contents.source)
    if description.exists(folder):
        return tuple(description.read(folder).labels)
    labels = checkpoint_tokenizer.read_conversion(folder).get(hugging_face.ENTRIES, {}) | (
        hugging_face.read_task_entries(contents)
    )
    by_id = labels.get("id2label", {})
    found = tuple(str(by_id.get(str(number), "")) for number in range(len(by_id)))
    # transformers numbers the labels of a model that has no names for them.
    return () if all(label in ("", f"LABEL_{number}") for number, label in enumerate(found)) else found


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels[:_MOST_LISTED]) + ", ..." * (len(labels) > _MOST_LISTED)
