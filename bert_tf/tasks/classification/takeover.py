"""Describes text classifiers of other projects, so that they are evaluated, exported and served without training."""

from collections.abc import Mapping
from typing import Any

from absl import logging

from bert_tf.checkpoint_formats.contents import Contents
from bert_tf.core.errors import InputError
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.classification.classification_task import CLASSIFICATION, REGRESSION
from bert_tf.tasks.classification.multi_label import MULTI_LABEL
from bert_tf.tasks.classification.reading import READ_AS_IN_THE_PAPER
from bert_tf.tasks.classification.settings import OWN_DATA

_KERNEL = "head/dense/kernel"
# Maps the values of problem_type in Hugging Face's configuration to kinds of tasks.
_KINDS = {
    "regression": REGRESSION, "single_label_classification": CLASSIFICATION, "multi_label_classification": MULTI_LABEL,
}  # fmt: skip


def describe(
    contents: Contents, entries: Mapping[str, Any], has_pairs: bool | None, do_lower_case: bool | None, length: int
) -> TaskDescription | None:
    """Returns the description of a checkpoint's text classifier; None if it has none, or if `has_pairs` is None.

    Args:
      contents: a checkpoint of another project.
      entries: the entries of Hugging Face's `config.json` about the labels; {} for other projects.
      has_pairs: whether the model reads pairs of texts, which no file states.
      do_lower_case: whether the tokenizer lower-cases text; None if unknown.
      length: maximum number of tokens in a row.

    Raises:
      InputError: the casing is unknown, two labels are equal, or a regression has several outputs.
    """
    if _KERNEL not in contents.tensors:
        if has_pairs is not None:
            raise InputError(f"--has_pairs: {contents.source} has no classifier of texts; drop the flag")
        return None
    if has_pairs is None:
        logging.info(
            "%s: to take over its classifier too, give --has_pairs if it reads pairs of texts, else --nohas_pairs",
            contents.source,
        )
        return None
    if do_lower_case is None:
        raise InputError(f"{contents.source}: no file states the casing; give --do_lower_case or --nodo_lower_case")
    outputs = contents.tensors[_KERNEL].shape[-1]
    kind = _KINDS.get(entries.get("problem_type"), REGRESSION if outputs == 1 else CLASSIFICATION)
    if kind == REGRESSION and outputs > 1:
        raise InputError(
            f"{contents.source}: predicts {outputs} scores for a text, but a regression here has one score"
        )
    by_id = entries.get("id2label", {})
    labels = tuple(str(by_id.get(str(number), f"LABEL_{number}")) for number in range(outputs))
    if len(set(labels)) != outputs:
        raise InputError(f"{contents.config_file}: id2label names a label twice ({', '.join(labels)}); fix the file")
    parameters = {"has_pairs": has_pairs, **READ_AS_IN_THE_PAPER.parameters}
    return TaskDescription(kind, OWN_DATA, () if kind == REGRESSION else labels, do_lower_case, length, parameters)
