"""Writes the lines of `evaluation_file` for classes, scores and sets of labels; `report` reads these lines.

Each line has the fields `index`, `text_a`, `label`, `prediction` and `loss`. For pairs of texts, a line also has
`text_b`. For classes and sets of labels, a line also has `probabilities`, in the order of the labels in `task.json`.
For sets of labels, `label` and `prediction` are lists.

Letters: N examples, C classes.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_tf.finetuning.task import Split
from bert_tf.tasks import evaluation_file


def write(
    folder: str,
    split: Split,
    logits: np.ndarray,
    answers: Callable[[np.ndarray, np.ndarray], Iterator[dict]],
    prefix: str,
) -> None:
    """Writes the file. Leaves out examples without a label. If a logit is not finite, writes no file.

    Args:
      folder: see `evaluation_file.write`.
      split: a split with one row for each of N examples.
      logits: logits, float [N, C], or predicted scores, float [N, 1].
      answers: function that yields the fields of each example: `classes`, `scores` or `label_sets`. The arguments of
        the function are the split's `label_ids` and the logits in float64.
      prefix: see `evaluation_file.write`.
    """
    if not np.all(np.isfinite(logits)):
        return
    found = answers(split.columns["label_ids"].numpy(), logits.astype(np.float64))
    entries = []
    for index, answer in zip(split.example_ids.tolist(), found, strict=True):
        example = split.examples[index]
        if example.label is None:
            continue
        entry = {"index": index, "text_a": example.text_a}
        if example.text_b is not None:
            entry["text_b"] = example.text_b
        entries.append(entry | answer)
    evaluation_file.write(folder, entries, prefix)


def classes(targets: np.ndarray, logits: np.ndarray, labels: Sequence[str]) -> Iterator[dict]:
    """Yields the fields for classes, from the ids of the true classes [N], the logits [N, C] and the C names."""
    log_probabilities = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    for target, row in zip(targets.astype(int), log_probabilities, strict=True):
        answer = {"label": labels[target], "prediction": labels[int(np.argmax(row))], "loss": float(-row[target])}
        yield answer | {"probabilities": np.exp(row).tolist()}


def label_sets(
    targets: np.ndarray, logits: np.ndarray, labels: Sequence[str], thresholds: np.ndarray
) -> Iterator[dict]:
    """Yields the fields for sets of labels.

    Args:
      targets: [N, C], 1 for each label that an example has, else 0.
      logits: [N, C].
      labels: names of the C labels.
      thresholds: [C], probability above which a label is predicted.
    """
    probabilities = np.exp(-np.logaddexp(0, -logits))
    losses = np.mean(np.logaddexp(0, logits) - targets * logits, axis=1)
    for target, loss, row in zip(targets > 0, losses, probabilities, strict=True):
        sets = [[labels[number] for number in np.flatnonzero(chosen)] for chosen in (target, row > thresholds)]
        yield {"label": sets[0], "prediction": sets[1], "loss": float(loss), "probabilities": row.tolist()}


def scores(targets: np.ndarray, logits: np.ndarray) -> Iterator[dict]:
    """Yields the fields for scores, from the true scores [N] and the predicted scores [N, 1]."""
    for target, score in zip(targets.tolist(), logits[:, 0].tolist(), strict=True):
        yield {"label": target, "prediction": score, "loss": (score - target) ** 2}
