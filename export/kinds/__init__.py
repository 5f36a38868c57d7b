"""The kinds of served models: one module for each folder of `bert_tf.tasks`, and modules for kinds without a task."""

import importlib

from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks import registry
from export.kinds import embeddings, fill_mask
from export.kinds.base import ServedCheckpoint, ServedModel, ServedTask

# Maps the name of each kind for checkpoints without a `task.json` to its class. `--task_name` takes these names.
CHECKPOINT_KINDS: dict[str, type[ServedCheckpoint]] = {**embeddings.KINDS, **fill_mask.KINDS}


def of_task(described: TaskDescription) -> type[ServedTask]:
    """Returns the class of served models for a fine-tuned task. The task's kind must be registered."""
    modules = [importlib.import_module(f"export.kinds.{folder}") for folder in registry.FOLDERS]
    return next(module.KINDS[described.kind] for module in modules if described.kind in module.KINDS)


def kind_of(described: TaskDescription) -> type[ServedModel]:
    """Returns the class of served models for the description of a task or of a checkpoint without a task."""
    return CHECKPOINT_KINDS.get(described.kind) or of_task(described)
