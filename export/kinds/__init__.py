"""The kinds of served models, one file for each family of answers."""

from export.kinds import choice, classification, embeddings, fill_mask, span, tagging
from export.kinds.base import ServedCheckpoint, ServedTask

# By the kind in `task.json`.
KINDS: dict[str, type[ServedTask]] = {
    **classification.KINDS,
    **choice.KINDS,
    **span.KINDS,
    **tagging.KINDS,
}
# By `--task_name`, for checkpoints without a `task.json`.
CHECKPOINT_KINDS: dict[str, type[ServedCheckpoint]] = {**embeddings.KINDS, **fill_mask.KINDS}
