"""The kinds of served models: one module for each folder of `bert_tf.tasks`, and kinds without a task."""

import importlib

from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks import registry
from export.kinds import embeddings, fill_mask
from export.kinds.base import ServedCheckpoint, ServedModel, ServedTask

# Kinds for checkpoints without a `task.json`, by `--task_name`, which is also the name of the kind.
CHECKPOINT_KINDS: dict[str, type[ServedCheckpoint]] = {**embeddings.KINDS, **fill_mask.KINDS}


def of_task(described: TaskDescription) -> type[ServedTask]:
    """Returns the served model of a fine-tuned task of a registered kind."""
    modules = [importlib.import_module(f"export.kinds.{folder}") for folder in registry.FOLDERS]
    return next(module.KINDS[described.kind] for module in modules if described.kind in module.KINDS)


def of(described: TaskDescription) -> type[ServedModel]:
    """Returns the served model of a task or of a kind without a task."""
    return CHECKPOINT_KINDS.get(described.kind) or of_task(described)
