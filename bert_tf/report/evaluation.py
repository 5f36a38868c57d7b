"""The sections of a fine-tuning's report that show the last evaluation, from what the task kept of it.

Of most tasks that is `dev_predictions.jsonl`, of a tagger `dev_predictions.txt`.

Letters: N examples, C classes.
"""

import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from sklearn.metrics import confusion_matrix

from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.report import charts
from bert_tf.report.page import elements
from bert_tf.tasks import evaluation_file
from bert_tf.tasks.classification.scores import SCORES
from bert_tf.tasks.tagging import conll_files, entity_scores, tag_schemes
from bert_tf.tasks.tagging.tagging_task import DEV_PREDICTIONS, OTHER_PREDICTIONS, TAGGING
from bert_tf.training import metrics_file

# A larger matrix cannot be read.
_MOST_CLASSES = 20
_MOST_ERRORS = 20
_MOST_CHARACTERS = 300
# Of confidence, for calibration.
_BINS = 15
# Columns of the texts of an example, of which it may have one or two.
_TEXTS = ("text", "second text")


def sections(folder: str) -> str:
    """Returns the sections of a run's last evaluation on its dev data, then those of other evaluated data, as HTML.

    Each begins with the name of the data and the step of the weights.
    """
    task = description.read(folder) if description.exists(folder) else None
    found = [(metrics_file.DEV, folder, _sections(folder, task, evaluation_file.NAME, DEV_PREDICTIONS))]
    for name, other in metrics_file.other_data(folder).items():
        found.append((name, other, _sections(other, task, evaluation_file.OTHER_NAME, OTHER_PREDICTIONS)))
    return elements.evaluations([(_head(name, source), parts) for name, source, parts in found if parts])


def _head(name: str, folder: str) -> str:
    step = metrics_file.evaluated_step(folder)
    return name if step is None else f"{name}, step {step:,}"


def _sections(folder: str, task: TaskDescription | None, name: str, tagged: str) -> list[str]:
    """Returns the sections of an evaluation of whatever kind, given the names of its files; [] if there is none."""
    if task and task.kind == TAGGING:
        return _entities(os.path.join(folder, tagged))
    entries = evaluation_file.read(folder, name)
    if not entries:
        return []
    if "choices" in entries[0]:
        return _choices(entries)
    if "question" in entries[0]:
        return _questions(entries)
    labels, example = list(task.labels if task else ()), entries[0]["label"]
    if isinstance(example, list):
        return _label_sets(entries, labels)
    return _classes(entries, labels) if isinstance(example, str) else _regression(entries)


def _entities(path: str) -> list[str]:
    """Shows the counts and metrics of each type of entities, and the sentences with the most errors."""
    if not tf.io.gfile.exists(path):
        return []
    sentences, answers = (conll_files.read_sentences(path, conll_files.Layout(0, column)) for column in (1, 2))
    true, predicted = ([sentence.tags for sentence in each] for each in (sentences, answers))
    found = entity_scores.compare(true, predicted)
    rows = [
        [type_ or entity_scores.NO_TYPE, *(f"{value:.3f}" for value in (counts.precision, counts.recall, counts.f1)),
         *(f"{count:,}" for count in (counts.true, counts.predicted, counts.right))]
        for type_, counts in [*found.types.items(), ("all", found.total)]
    ]  # fmt: skip
    note = f"{found.words:,} words; an entity is right if its type and its words are."
    head = ["", "precision", "recall", "F1", "in the data", "predicted", "right"]
    errors = _wrong_sentences([sentence.words for sentence in sentences], true, predicted)
    return [elements.section("Entities", elements.table(head, rows), note=note), errors]


def _wrong_sentences(
    words: Sequence[Sequence[str]], true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> str:
    """Shows the sentences with the most wrong entities, of equal ones the shortest first."""
    wrong = []
    for sentence, *tags in zip(words, true, predicted, strict=True):
        known, found = map(tag_schemes.entities, tags)
        missed, added = (
            [one for one in these if one not in those] for these, those in ((known, found), (found, known))
        )
        if missed or added:
            wrong.append((len(missed) + len(added), sentence, missed, added))
    wrong.sort(key=lambda error: (-error[0], len(error[1])))
    rows = [
        [str(count), *(_named_entities(sentence, entities) for entities in both), _short(" ".join(sentence))]
        for count, sentence, *both in wrong[:_MOST_ERRORS]
    ]
    note = (
        f"{len(wrong):,} of {len(words):,} sentences have a wrong entity. One with wrong words or a wrong type is both "
        "missed and added."
    )
    return _errors(note, ["errors", "missed", "added", "sentence"], rows, "sentences")


def _named_entities(words: Sequence[str], entities: Sequence[tag_schemes.Entity]) -> str:
    return _short(
        ", ".join(f"{' '.join(words[e.start : e.end])} ({e.type or entity_scores.NO_TYPE})" for e in entities)
    )


def _label_sets(entries: Sequence[dict], labels: Sequence[str]) -> list[str]:
    """Shows a yes or no for each label: its four counts, its metrics, and the calibration of all decisions."""
    truth, answers = (np.array([[x in e[name] for x in labels] for e in entries]) for name in ("label", "prediction"))
    chances = np.array([entry["probabilities"] for entry in entries])
    counts = [(a & b).sum(axis=0) for a, b in
              ((truth, answers), (truth, ~answers), (~truth, answers), (~truth, ~answers))]  # fmt: skip
    rows = [[label, *(f"{count[number]:,}" for count in counts)] for number, label in enumerate(labels)]
    wrong = _worst([entry for entry, right in zip(entries, np.all(truth == answers, axis=1), strict=True) if not right])
    listed = [[f"{e['loss']:.3g}", ", ".join(e["label"]), ", ".join(e["prediction"]), *_texts(e)] for e in wrong]
    note = f"{np.sum(np.any(truth != answers, axis=1)):,} of {len(entries):,} examples have a wrong label."
    return [
        elements.section(
            "Labels, found and missed", elements.table(["", "found", "missed", "added", "rightly absent"], rows)
        ),
        elements.section("Labels", class_table(truth, answers, labels)),
        calibration_section(
            np.maximum(chances, 1 - chances).ravel(),
            ((chances > 0.5) == truth).ravel(),
            "The answers are yes or no for each label, above and below a probability of 50%. ",
        ),
        _errors(note, ["loss", "true", "predicted", *_TEXTS], listed),
    ]


def _classes(entries: Sequence[dict], labels: Sequence[str]) -> list[str]:
    truth, answers = (np.array([entry[name] for entry in entries]) for name in ("label", "prediction"))
    table = class_table(truth[:, None] == labels, answers[:, None] == labels, labels, is_exclusive=True)
    return [
        confusions(confusion_matrix(truth, answers, labels=labels), labels),
        elements.section("Classes", table),
        *_chosen(entries, ["true", "predicted"], lambda entry, name: entry[name]),
    ]


def _choices(entries: Sequence[dict]) -> list[str]:
    return _chosen(entries, ["right", "chosen"], lambda entry, name: _short(entry["choices"][entry[name]]))


def _chosen(entries: Sequence[dict], names: Sequence[str], text_of: Callable[[dict, str], str]) -> list[str]:
    """Shows the calibration of answers with probabilities, and the worst errors.

    Args:
      entries: lines of the file.
      names: of the columns of the right and of the predicted answer.
      text_of: returns the text of an entry's "label" or "prediction".
    """
    is_right = np.array([entry["label"] == entry["prediction"] for entry in entries])
    confidence = np.array([max(entry["probabilities"]) for entry in entries])
    rows = [
        [f"{e['loss']:.3g}", text_of(e, "label"), f"{text_of(e, 'prediction')} ({max(e['probabilities']):.0%})",
         *_texts(e)]
        for e in _worst([entry for entry in entries if entry["label"] != entry["prediction"]])
    ]  # fmt: skip
    note = f"{np.sum(~is_right):,} of {len(entries):,} answers are wrong."
    return [calibration_section(confidence, is_right), _errors(note, ["loss", *names, *_TEXTS], rows)]


def _questions(entries: Sequence[dict]) -> list[str]:
    """Shows the calibration of the answers, and the questions with the lowest F1, the surest answers first."""
    is_right = np.array([entry["exact_match"] == 1 for entry in entries])
    confidence = np.array([entry["probability"] for entry in entries])
    wrong = sorted((e for e in entries if e["f1"] < 1), key=lambda e: (e["f1"], -e["probability"]))[:_MOST_ERRORS]
    rows = [
        [f"{e['f1']:.2f}", f"{_answer(e['prediction'])} ({e['probability']:.0%})",
         " | ".join(map(_short, e["label"])) or _answer(""), _short(e["question"]), _short(e["context"])]
        for e in wrong
    ]  # fmt: skip
    note = (
        f"The answers to {np.sum(~is_right):,} of {len(entries):,} questions are not exactly right. The share of an "
        "answer is its probability among the best ones."
    )
    head = ["F1", "predicted", "right", "question", "context around the right answer"]
    return [calibration_section(confidence, is_right), _errors(note, head, rows, "questions")]


def _answer(text: str) -> str:
    return _short(text) or "(no answer)"


def _regression(entries: Sequence[dict]) -> list[str]:
    truth, answers = (np.array([entry[name] for entry in entries]) for name in ("label", "prediction"))
    errors = answers - truth
    rows = [[name.capitalize(), f"{SCORES[name](truth, answers):.4f}"] for name in ("pearson", "spearman")]
    rows.append(["Root mean squared error", f"{np.sqrt(np.mean(errors**2)):.4g}"])
    rows.append(["Mean absolute error", f"{np.mean(np.abs(errors)):.4g}"])
    drawn = [draw(truth, answers) for draw in (charts.scatter, charts.residuals)]
    worst = [
        [f"{e['prediction'] - e['label']:+.3g}", f"{e['label']:.4g}", f"{e['prediction']:.4g}", *_texts(e)]
        for e in _worst(entries)
    ]
    scores = elements.table(["", "value"], rows)
    return [
        elements.section("Scores", scores, elements.charts(drawn), note=f"{len(entries):,} examples."),
        _errors("The largest errors come first.", ["error", "true", "predicted", *_TEXTS], worst),
    ]


def confusions(matrix: np.ndarray, labels: Sequence[str]) -> str:
    """Shows the confusion matrix; of many classes, a table of the pairs that are confused most often.

    Args:
      matrix: int [C, C], rows true, columns predicted.
      labels: names of the C classes.
    """
    if len(labels) <= _MOST_CLASSES:
        note = "Rows are true classes, columns predicted ones. Shares are of the row."
        return elements.section("Confusion matrix", elements.confusion_matrix(labels, matrix.tolist()), note=note)
    wrong = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_ERRORS]
    rows = [
        [labels[row], labels[column], f"{wrong[row, column]:,}", f"{wrong[row, column] / matrix[row].sum():.1%}"]
        for row, column in zip(*np.unravel_index(order, wrong.shape), strict=True)
        if wrong[row, column]
    ]
    note = f"Of {len(labels)} classes, the pairs that are confused most often; shares are of the true class."
    pairs = elements.table(["true", "predicted", "examples", "share"], rows) if rows else "None is confused."
    return elements.section("Confusion matrix", pairs, note=note)


def class_table(truth: np.ndarray, answers: np.ndarray, labels: Sequence[str], is_exclusive: bool = False) -> str:
    """Returns a table of the metrics of each label, and their mean.

    Args:
      truth: bool [N, C], whether an example has a label.
      answers: bool [N, C], whether the model says so.
      labels: names of the C labels.
      is_exclusive: whether each example has one label. The mean is then over the labels that occur, as scikit-learn's.
    """
    right, found, support = (np.sum(some, axis=0) for some in (truth & answers, answers, truth))
    metrics = np.stack([right, right, 2 * right]) / np.maximum([found, support, found + support], 1)  # [3, C]
    averaged = (found + support > 0) | (not is_exclusive)
    what = "mean of the classes" if averaged.all() else f"mean of the {averaged.sum()} classes that occur"
    columns = np.column_stack([metrics, metrics[:, averaged].mean(axis=1)]).T
    rows = [
        [name, *(f"{value:.3f}" for value in values), f"{count:,}"]
        for name, values, count in zip([*labels, what], columns, [*support, support.sum()], strict=True)
    ]
    return elements.table(["", "precision", "recall", "F1", "support"], rows)


def calibration(confidence: np.ndarray, is_right: np.ndarray) -> tuple[float, np.ndarray]:
    """Computes the expected calibration error over 15 bins of equal width (C. Guo et al., 2017).

    Args:
      confidence: float [N], probability of the answer; a bin includes its upper end.
      is_right: bool [N].

    Returns:
      The error, and of each bin that is not empty the mean confidence, the share of right answers and the number of
      examples, float [3, bins].
    """
    numbers = np.clip(np.ceil(confidence * _BINS) - 1, 0, _BINS - 1)
    members = [numbers == number for number in np.unique(numbers)]
    bins = np.transpose([(confidence[some].mean(), is_right[some].mean(), some.sum()) for some in members])
    return float(np.average(np.abs(bins[0] - bins[1]), weights=bins[2])), bins


def calibration_section(confidence: np.ndarray, is_right: np.ndarray, note: str = "") -> str:
    """Shows the expected calibration error and the reliability diagram below a note; see `calibration`."""
    error, bins = calibration(confidence, is_right)
    note += (
        f"Expected calibration error {error:.4f}, {_BINS} bins of equal width: the mean confidence is "
        f"{confidence.mean():.1%}, and {np.mean(is_right):.1%} of the answers are right."
    )
    return elements.section("Calibration", elements.charts([charts.reliability(*bins)], "single"), note=note)


def _worst(entries: Sequence[dict]) -> list[dict]:
    return sorted(entries, key=lambda entry: -entry["loss"])[:_MOST_ERRORS]


def _errors(note: str, head: Sequence[str], rows: Sequence[Sequence[str]], what: str = "errors") -> str:
    """Shows a table of errors, whose rows may lack the last columns of the head."""
    return elements.section(f"Worst {what}", elements.table(head[: len(rows[0])], rows, []) if rows else "", note=note)


def _texts(entry: dict) -> list[str]:
    return [_short(entry[name]) for name in ("text_a", "text_b") if name in entry]


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
