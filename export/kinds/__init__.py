"""The kinds of served models: one module for each folder of `bert_tf.tasks`, and those that need no task."""

import importlib

from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks import registry
from export.kinds import embeddings, fill_mask
from export.kinds.base import ServedCheckpoint, ServedModel, ServedTask

# By `--task_name`, which is their kind too, for checkpoints without a `task.json`.
CHECKPOINT_KINDS: dict[str, type[ServedCheckpoint]] = {**embeddings.KINDS, **fill_mask.KINDS}


def of_task(described: TaskDescription) -> type[ServedTask]:
    """Returns the served model of a fine-tuned task of a registered kind."""
    modules = [importlib.import_module(f"export.kinds.{folder}") for folder in registry.FOLDERS]
    return next(module.KINDS[described.kind] for module in modules if described.kind in module.KINDS)


def of(described: TaskDescription) -> type[ServedModel]:
    """Returns the served model of a task, or of what is served without one."""
    return CHECKPOINT_KINDS.get(described.kind) or of_task(described)
