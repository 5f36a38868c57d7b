"""What a task takes of the checkpoint that it starts from.

Letters: C classes.
"""

import os
from collections.abc import Callable

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf import checkpoints
from bert_tf.checkpoint_formats import names
from bert_tf.config import BertConfig
from bert_tf.finetuning import description
from bert_tf.finetuning.task import Task


def check_initial(
    path: str,
    task: Task,
    config: BertConfig,
    reinitialize_head: bool,
    make_head: Callable[[BertConfig], keras.layers.Layer] | None = None,
) -> None:
    """Refuses a checkpoint that cannot initialize a task's model, and warns about a head of other labels.

    A head of as many classes as the task's is taken, whichever task it was trained on.

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
    folder = os.path.dirname(checkpoints.check_initial(path, config, head_shapes=shapes))
    if not description.exists(folder):
        return
    trained = description.read(folder)
    if trained.bilstm_head and not any(path.startswith(names.BILSTM) for path in shapes):
        return  # its head is not taken
    pooling, wanted = (of.parameters.get("pooling", "cls") for of in (trained, task))
    if pooling != wanted:
        logging.warning(
            "the head was trained with --pooling=%s and starts with %s; --reinitialize_head draws a new one",
            pooling, wanted,
        )  # fmt: skip
    if (trained.kind, len(trained.labels)) == (task.kind, len(task.labels)) and trained.labels != tuple(task.labels):
        logging.warning(
            "the head was trained on %s with the labels %s and starts as that of %s; --reinitialize_head draws a new "
            "one",
            trained.task_name, ", ".join(trained.labels), ", ".join(task.labels),
        )  # fmt: skip
