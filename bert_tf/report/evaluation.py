"""The sections of a fine-tuning's report that show the last evaluation, from what the task kept of it.

Of most tasks that is `dev_predictions.jsonl`, of a tagger `dev_predictions.txt`.

Letters: N examples, C classes.
"""

import html
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.finetuning import description
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.tasks import conll_files, entity_scores, evaluation_file, tag_schemes
from bert_tf.finetuning.tasks.scores import SCORES
from bert_tf.finetuning.tasks.tagging import DEV_PREDICTIONS, OTHER_PREDICTIONS, TAGGING
from bert_tf.report import classes, diagrams
from bert_tf.report.page import scrolling, table
from bert_tf.training import metrics_file

# A larger matrix cannot be read.
_MOST_CLASSES = 20
_MOST_ERRORS = 20
_MOST_CHARACTERS = 300


def sections(folder: str) -> str:
    """Returns the sections of a run's last evaluation on its dev data, then those of other evaluated data.

    Each begins with the name of the data and the step of the weights.
    """
    if not description.exists(folder):
        return _sections(folder, None, evaluation_file.NAME, DEV_PREDICTIONS)
    task = description.read(folder)
    parts = {_head(metrics_file.DEV, folder): _sections(folder, task, evaluation_file.NAME, DEV_PREDICTIONS)}
    for name, other in metrics_file.other_data(folder).items():
        parts[_head(name, other)] = _sections(other, task, evaluation_file.OTHER_NAME, OTHER_PREDICTIONS)
    return "\n".join(f"<h1>{html.escape(head)}</h1>{found}" for head, found in parts.items() if found)


def _head(name: str, folder: str) -> str:
    step = metrics_file.evaluated_step(folder)
    return name if step is None else f"{name}, step {step:,}"


def _sections(folder: str, task: TaskDescription | None, name: str, tagged: str) -> str:
    """Returns the sections of an evaluation of whatever kind, given the names of its files; "" if there is none."""
    if task and task.kind == TAGGING:
        return _entities(os.path.join(folder, tagged))
    entries = evaluation_file.read(folder, name)
    if not entries:
        return ""
    if "choices" in entries[0]:
        return _choices(entries)
    if "question" in entries[0]:
        return _questions(entries)
    labels, example = list(task.labels if task else ()), entries[0]["label"]
    if isinstance(example, list):
        return _label_sets(entries, labels)
    return _classes(entries, labels) if isinstance(example, str) else _regression(entries)


def _entities(path: str) -> str:
    """Shows the counts and metrics of each type of entities, and the sentences with the most errors."""
    if not tf.io.gfile.exists(path):
        return ""
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
    return f'<h2>Entities</h2><p class="note">{note}</p>{table(head, rows)}{errors}'


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
    drawn = table(["errors", "missed", "added", "sentence"], rows, numbers=False) if rows else ""
    return f'<h2>Worst sentences</h2><p class="note">{note}</p>{drawn}'


def _named_entities(words: Sequence[str], entities: Sequence[tag_schemes.Entity]) -> str:
    return _short(
        ", ".join(f"{' '.join(words[e.start : e.end])} ({e.type or entity_scores.NO_TYPE})" for e in entities)
    )


def _label_sets(entries: Sequence[dict], labels: Sequence[str]) -> str:
    """Shows a yes or no for each label: its four counts, its metrics, and the calibration of all decisions."""
    truth, answers = (np.array([[x in e[name] for x in labels] for e in entries]) for name in ("label", "prediction"))
    chances = np.array([entry["probabilities"] for entry in entries])
    counts = [(a & b).sum(axis=0) for a, b in
              ((truth, answers), (truth, ~answers), (~truth, answers), (~truth, ~answers))]  # fmt: skip
    rows = [[label, *(f"{count[number]:,}" for count in counts)] for number, label in enumerate(labels)]
    wrong = _worst([entry for entry, right in zip(entries, np.all(truth == answers, axis=1), strict=True) if not right])
    listed = [[f"{e['loss']:.3g}", ", ".join(e["label"]), ", ".join(e["prediction"])] for e in wrong]
    note = f"{np.sum(np.any(truth != answers, axis=1)):,} of {len(entries):,} examples have a wrong label."
    return "\n".join(
        [
            "<h2>Labels, found and missed</h2>" + table(["", "found", "missed", "added", "rightly absent"], rows),
            "<h2>Labels</h2>" + class_table(classes.class_metrics(truth, answers), labels),
            calibration_section(
                np.maximum(chances, 1 - chances).ravel(),
                ((chances > 0.5) == truth).ravel(),
                "The answers are yes or no for each label, above and below a probability of 50%. ",
            ),
            _errors(note, ["loss", "true", "predicted"], listed, wrong),
        ]
    )


def _classes(entries: Sequence[dict], labels: Sequence[str]) -> str:
    ids = {label: number for number, label in enumerate(labels)}
    truth, answers = (np.array([ids[entry[name]] for entry in entries]) for name in ("label", "prediction"))
    confidence = np.array([max(entry["probabilities"]) for entry in entries])
    matrix = classes.confusion_matrix(truth, answers, len(labels))
    one_hot = np.eye(len(labels), dtype=bool)
    parts = ["<h2>Confusion matrix</h2>" + confusions(matrix, labels)]
    metrics = classes.class_metrics(one_hot[truth], one_hot[answers])
    occurs = metrics.support + metrics.predicted > 0  # scikit-learn's mean leaves out the other classes
    parts.append("<h2>Classes</h2>" + class_table(metrics, labels, occurs))
    parts.append(calibration_section(confidence, truth == answers))
    wrong = [entry for entry in entries if entry["label"] != entry["prediction"]]
    note = f"{len(wrong):,} of {len(entries):,} answers are wrong."
    rows = [
        [f"{entry['loss']:.3g}", entry["label"], f"{entry['prediction']} ({max(entry['probabilities']):.0%})"]
        for entry in _worst(wrong)
    ]
    parts.append(_errors(note, ["loss", "true", "predicted"], rows, _worst(wrong)))
    return "\n".join(parts)


def _choices(entries: Sequence[dict]) -> str:
    """Shows the calibration of the chosen texts, and the worst errors with the right and the chosen text."""
    is_right = np.array([entry["label"] == entry["prediction"] for entry in entries])
    confidence = np.array([max(entry["probabilities"]) for entry in entries])
    wrong = _worst([entry for entry in entries if entry["label"] != entry["prediction"]])
    rows = [
        [f"{e['loss']:.3g}", _short(e["choices"][e["label"]]),
         f"{_short(e['choices'][e['prediction']])} ({max(e['probabilities']):.0%})"]
        for e in wrong
    ]  # fmt: skip
    note = f"{np.sum(~is_right):,} of {len(entries):,} answers are wrong."
    return calibration_section(confidence, is_right) + "\n" + _errors(note, ["loss", "right", "chosen"], rows, wrong)


def _questions(entries: Sequence[dict]) -> str:
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
    drawn = table(head, rows, numbers=False) if rows else ""
    return f'{calibration_section(confidence, is_right)}\n<h2>Worst questions</h2><p class="note">{note}</p>{drawn}'


def _answer(text: str) -> str:
    return _short(text) or "(no answer)"


def _regression(entries: Sequence[dict]) -> str:
    truth, answers = (np.array([entry[name] for entry in entries]) for name in ("label", "prediction"))
    errors = answers - truth
    rows = [[name.capitalize(), f"{SCORES[name](truth, answers):.4f}"] for name in ("pearson", "spearman")]
    rows.append(["Root mean squared error", f"{np.sqrt(np.mean(errors**2)):.4g}"])
    rows.append(["Mean absolute error", f"{np.mean(np.abs(errors)):.4g}"])
    drawn = "".join(f"<div>{draw(truth, answers)}</div>" for draw in (diagrams.scatter, diagrams.residuals))
    worst = [[f"{entry['prediction'] - entry['label']:+.3g}", f"{entry['label']:.4g}", f"{entry['prediction']:.4g}"]
             for entry in _worst(entries)]  # fmt: skip
    return (
        f'<h2>Scores</h2><p class="note">{len(entries):,} examples.</p>{table(["", "value"], rows)}'
        f'<div class="curves">{drawn}</div>'
        + _errors("The largest errors come first.", ["error", "true", "predicted"], worst, _worst(entries))
    )


def confusions(matrix: np.ndarray, labels: Sequence[str]) -> str:
    """Returns the matrix as a table; for many classes, a table of the pairs that are confused most often.

    Args:
      matrix: int [C, C], rows true, columns predicted.
      labels: names of the C classes.
    """
    totals = np.maximum(matrix.sum(axis=1), 1)
    if len(labels) > _MOST_CLASSES:
        wrong = matrix - np.diag(np.diag(matrix))
        order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_ERRORS]
        pairs = [(row, column) for row, column in zip(*np.unravel_index(order, wrong.shape), strict=True)]
        rows = [
            [labels[row], labels[column], f"{wrong[row, column]:,}", f"{wrong[row, column] / totals[row]:.1%}"]
            for row, column in pairs
            if wrong[row, column]
        ]
        note = f"Of {len(labels)} classes, the pairs that are confused most often; shares are of the true class."
        head = ["true", "predicted", "examples", "share"]
        return f'<p class="note">{note}</p>' + (table(head, rows) if rows else "<p>None is confused.</p>")
    note = "Rows are true classes, columns predicted ones. Shares are of the row."
    head = "".join(f'<th class="number">{html.escape(label)}</th>' for label in labels)
    body = []
    for row, label in enumerate(labels):
        cells = "".join(
            _cell(count, count / totals[row], row == column) for column, count in enumerate(matrix[row].tolist())
        )
        body.append(f"<tr><th>{html.escape(label)}</th>{cells}</tr>")
    matrix_table = f'<table class="confusion"><tr><th>true \\ predicted</th>{head}</tr>{"".join(body)}</table>'
    return f'<p class="note">{note}</p>{scrolling(matrix_table)}'


def _cell(count: int, share: float, is_right: bool) -> str:
    if not count:
        return '<td class="number">0</td>'
    # The root makes small shares of errors visible.
    color, strength = ("46, 158, 107", share) if is_right else ("217, 115, 13", share**0.5)
    return (
        f'<td class="number" style="background: rgba({color}, {0.6 * strength:.2f})">{count:,}'
        f"<br/><small>{share:.1%}</small></td>"
    )


def class_table(metrics: classes.ClassMetrics, labels: Sequence[str], averaged: np.ndarray | None = None) -> str:
    """Returns a table of the metrics of each label, and their mean.

    Args:
      metrics: of C labels.
      labels: their names.
      averaged: bool [C], which labels the mean is over; None for all.
    """
    chosen = np.ones(len(labels), bool) if averaged is None else averaged
    columns = (metrics.precision, metrics.recall, metrics.f1)
    rows = [
        [label, *(f"{column[number]:.3f}" for column in columns), f"{metrics.support[number]:,}"]
        for number, label in enumerate(labels)
    ]
    what = "mean of the classes" if chosen.all() else f"mean of the {chosen.sum()} classes that occur"
    rows.append([what, *(f"{column[chosen].mean():.3f}" for column in columns), f"{metrics.support.sum():,}"])
    return table(["", "precision", "recall", "F1", "support"], rows)


def calibration_section(confidence: np.ndarray, is_right: np.ndarray, note: str = "") -> str:
    """Returns the expected calibration error and the reliability diagram below a note; see `classes.calibration`."""
    found = classes.calibration(confidence, is_right)
    note += (
        f"Expected calibration error {found.error:.4f}, 15 bins of equal width: the mean confidence is "
        f"{confidence.mean():.1%}, and {np.mean(is_right):.1%} of the answers are right."
    )
    drawn = f'<div class="single">{diagrams.reliability(found)}</div>'
    return f'<h2>Calibration</h2><p class="note">{note}</p>{drawn}'


def _worst(entries: Sequence[dict]) -> list[dict]:
    return sorted(entries, key=lambda entry: -entry["loss"])[:_MOST_ERRORS]


def _errors(note: str, head: Sequence[str], rows: Sequence[Sequence[str]], entries: Sequence[dict]) -> str:
    """Returns a table of errors with their texts."""
    texts = [[_short(entry[name]) for name in ("text_a", "text_b") if name in entry] for entry in entries]
    both = ["text", "second text"][: len(texts[0])] if texts else []
    drawn = table([*head, *both], [[*row, *text] for row, text in zip(rows, texts, strict=True)], numbers=False)
    return f'<h2>Worst errors</h2><p class="note">{note}</p>' + (drawn if rows else "")


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
