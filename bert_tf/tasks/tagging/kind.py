"""The kind of task that tags words, for the registry."""

import os
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks import report_parts
from bert_tf.tasks.registry import TaskKind
from bert_tf.tasks.report_parts import MOST_ERRORS, Part, Table, short
from bert_tf.tasks.tagging import conll_files, entity_scores, tag_schemes
from bert_tf.tasks.tagging.settings import NerSettings
from bert_tf.tasks.tagging.tagging_data import tagging_task
from bert_tf.tasks.tagging.tagging_task import TAGGING, TaggingTask


def _task_of(described: TaskDescription, folder: str) -> TaggingTask:
    del folder
    parameters = described.parameters
    optional = {name: parameters[name] for name in ("document_context", "features", "lstm_size") if name in parameters}
    return TaggingTask(tuple(described.labels), parameters["tag_scheme"], **optional)


def _check_format(format: str, source: str, described: TaskDescription) -> None:
    if described.parameters.get("document_context"):
        logging.warning(
            "--format=%s: code for this format reads each sentence alone, but %s was trained with "
            "--document_context, so the tags will differ; --format=bert_tf keeps the context", format, source,
        )  # fmt: skip


def _report(folder: str, prefix: str, described: TaskDescription) -> list[Part]:
    """Returns tables of the metrics of each type of entity, and of the sentences with the most errors."""
    del described
    path = os.path.join(folder, f"{prefix}_predictions.txt")  # see `conll_files.write_predictions`
    if not tf.io.gfile.exists(path):
        return []
    sentences, answers = (list(conll_files.rows(path, conll_files.WordColumns(0, column))) for column in (1, 2))
    true, predicted = ([row["tags"] for _, row in each] for each in (sentences, answers))
    comparison = entity_scores.compare(true, predicted)
    rows = [
        [type_ or entity_scores.NO_TYPE, *(f"{value:.3f}" for value in (counts.precision, counts.recall, counts.f1)),
         *(f"{count:,}" for count in (counts.true, counts.predicted, counts.right))]
        for type_, counts in [*comparison.types.items(), ("all", comparison.total)]
    ]  # fmt: skip
    note = f"{comparison.words:,} words; an entity is right if its type and its words are right."
    head = ["", "precision", "recall", "F1", "in the data", "predicted", "right"]
    errors = _wrong_sentences([row["words"] for _, row in sentences], true, predicted)
    return [Table("Entities", head, rows, note), errors]


def _wrong_sentences(
    words: Sequence[Sequence[str]], true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> Table:
    """Returns a table of the sentences with the most wrong entities. Among sentences with the same number of wrong
    entities, shorter sentences come first."""
    wrong = []
    for sentence, *tags in zip(words, true, predicted, strict=True):
        right, answered = map(tag_schemes.entities, tags)
        missed = [entity for entity in right if entity not in answered]
        added = [entity for entity in answered if entity not in right]
        if missed or added:
            wrong.append((len(missed) + len(added), sentence, missed, added))
    wrong.sort(key=lambda error: (-error[0], len(error[1])))
    rows = [
        [str(count), *(_named_entities(sentence, entities) for entities in both), short(" ".join(sentence))]
        for count, sentence, *both in wrong[:MOST_ERRORS]
    ]
    note = (
        f"{len(wrong):,} of {len(words):,} sentences have a wrong entity. Missed entities are in the data, but are not "
        "predicted. Added entities are predicted, but are not in the data. An entity that is predicted "
        "with wrong words or a wrong type gives one of each."
    )
    return report_parts.errors(note, ["errors", "missed", "added", "sentence"], rows, "sentences")


def _named_entities(words: Sequence[str], entities: Sequence[tag_schemes.Entity]) -> str:
    return short(", ".join(f"{' '.join(words[e.start : e.end])} ({e.type or entity_scores.NO_TYPE})" for e in entities))


_ENTRIES = {"problem_type": "single_label_classification"}
KINDS = [TaskKind(TAGGING, NerSettings, tagging_task, _task_of, _report, _check_format, config_entries=_ENTRIES)]
