"""Reads pairs, triplets, scored pairs and single texts from tables, and collections for retrieval in BEIR's layout.

Collections: N. Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval
Models", 2021. A collection is a folder with `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.core.json_lines import without_surrogates
from bert_tf.finetuning.stratified_split import content_of
from bert_tf.finetuning.task_data import TaskData
from bert_tf.rows import Row, cells, files
from bert_tf.rows.delimited import Layout
from bert_tf.rows.sources import Files, Memory

# The forms of data: an anchor with its positive and negatives, two texts with a score, one text, and a collection.
PAIRS, SCORED, TEXTS, COLLECTION = "pairs", "scored pairs", "single texts", "a collection"
# Possible names of the columns of pairs and of scored pairs. If a file has several of these pairs, the first is used.
_ANCHORS, _POSITIVES = ("anchor", "query", "question"), ("positive", "document", "passage", "answer", "pos")
_PAIRS = tuple(itertools.product(_ANCHORS, _POSITIVES))
_SCORED = (("sentence1", "sentence2"), ("text_a", "text_b"))
_NEGATIVE, _TEXT = re.compile(r"negatives?(_?\d+)?|neg"), "text"
# Possible names of the column of scores, as in sentence-transformers; right and wrong pairs have the scores 1 and 0.
_SCORES = ("score", "label")
# The beginning of the name of a class that means a wrong pair.
_WRONG = re.compile("0|no|false|wrong|un|dis|in|neg|contra", re.IGNORECASE)
_REMEDY = "give pairs of texts of like meaning, or a column score with larger numbers for texts of more alike meaning"
_JUDGMENT = ("query-id", "corpus-id", "score")
_QRELS = {"dev": ("dev", "validation", "test"), "test": ("test", "dev"), "train": ("train",)}


@dataclasses.dataclass(frozen=True)
class Texts:
    """An example of training or evaluation."""

    # an anchor, its positive and any number of negatives; the two texts of a scored pair; or one text, which training
    # data has twice, because the text is its own positive
    texts: tuple[str, ...]
    form: str
    label: float | None = None  # the score of a scored pair; None if it is unknown or there is none
    id: str | None = None  # id of the example in its file; None if absent
    place: str = dataclasses.field(default="", repr=False, compare=False)  # where the example is, for messages


@dataclasses.dataclass(frozen=True)
class CollectionText:
    """A query or a document of a collection."""

    id: str
    texts: tuple[str]
    # for a query, the gain of each relevant document by the document's id; None for a document
    relevant: Mapping[str, float] | None = None
    form: str = COLLECTION
    label: bool = True  # whether the text is part of an evaluation; always true
    place: str = dataclasses.field(default="", repr=False, compare=False)


def text_data(data_dir: str, paths: Mapping[str, Sequence[str]]) -> TaskData:
    """Returns data with a file or the folder of a collection per split; see `Files`."""
    source = Files(data_dir, paths, lambda split: [*files.names_of(split), split], rows_of_table)
    return TaskData.of(source, _parse, strata=_strata)


def in_memory(rows: Mapping[str, Sequence[Row]], named: TaskData) -> TaskData:
    """Returns data with rows in memory; `named` is the data that flags name, for other splits and unlabeled texts."""
    source = Memory(
        rows, "examples in memory", remedy="give dev to evaluate, or call encode for vectors", others=named.source
    )
    return TaskData.of(source, _parse, strata=_strata, unlabeled=named)


def rows_of_table(path: str, with_labels: bool = True) -> Iterator[Row]:
    """Returns the rows of a table, in which right and wrong pairs have the scores 1 and 0; no rows for a folder."""
    if tf.io.gfile.isdir(path):
        return iter(())
    for name in _SCORES:
        names = files.class_names(path, name)
        if names and not (len(names) == 2 and _WRONG.match(names[0])):
            raise InputError(f"{path}: {name} has the classes {', '.join(names)}, which are not scores; {_REMEDY}")
    return files.rows(path, names_classes=False)


def _parse(file: str, rows: Iterator[Row], split: str, with_labels: bool) -> list[Texts] | list[CollectionText]:
    if not tf.io.gfile.isdir(file):
        return of_rows(list(rows), file, split, with_labels)
    if split == "train":
        raise InputError(f"{file}: a collection is for evaluation; give a file with pairs, scored pairs or texts")
    return read_collection(file, split)


def _strata(examples: Sequence[Texts]) -> tuple[list[str], list[Hashable]]:
    return [content_of(*example.texts) for example in examples], [None] * len(examples)


def form_of(examples: Sequence[Any]) -> str:
    """Returns the form of the examples of a split, which may be from several files."""
    other = next((example for example in examples if example.form != examples[0].form), None)
    if other:
        raise InputError(f"{other.place}: holds {other.form}, but {examples[0].place} holds {examples[0].form}; "
                         "give files of one form")  # fmt: skip
    return examples[0].form


def of_rows(rows: Sequence[Row], path: str, split: str, with_scores: bool = True) -> list[Texts]:
    """Returns the examples of the rows of a table.
    `path`: the name of the table, for messages."""
    if not rows:
        return []
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    negatives = list(filter(_NEGATIVE.fullmatch, names))
    pair = next((pair for pair in (*_PAIRS, *_SCORED) if set(pair) <= set(names)), ())
    # The test data of scored pairs may lack the scores.
    score = next((name for name in _SCORES if name in names), "")
    is_unscored = split == "test" and not (score and with_scores)
    form = PAIRS if pair in _PAIRS else TEXTS
    if pair and (score or (pair in _SCORED and is_unscored)):
        form = SCORED
    if form == SCORED and pair in _PAIRS and score == "score":  # perhaps votes for an answer
        raise InputError(
            f"{path}: has the column {score} beside {' and '.join(pair)}; drop this column, or name scored texts "
            "sentence1 and sentence2"
        )
    if form == TEXTS and _TEXT in names and score:
        raise InputError(
            f"{path}: has the columns {_TEXT} and {score}; give run_classifier texts with classes, or drop the column "
            f"{score} to train on single texts"
        )
    if (form == TEXTS and (pair or negatives or _TEXT not in names)) or (form == SCORED and negatives):
        listed = " and ".join(map("|".join, (_ANCHORS, _POSITIVES)))
        raise InputError(
            f"{path}: has the columns {', '.join(names)}; give {listed} (and negative_1, ...), or sentence1, "
            "sentence2 and score, or text"
        )
    first, *second = pair or (_TEXT,)
    examples = []
    for place, row in rows:
        text = _checked(place, first, row.get(first))
        more = [_checked(place, name, cell) for name in negatives for cell in _cells(row.get(name))]
        label = cells.number(place, row, score) if form == SCORED and not is_unscored else None
        if not second:
            examples.append(Texts((text,) * (2 if split == "train" else 1), form, place=place))
        for name in second:
            for cell in _cells(row.get(name)) or [None]:  # each of several positives makes an example
                examples.append(Texts((text, _checked(place, name, cell), *more), form, label, place=place))
    if form == SCORED:
        _check_scores(path, [example.label for example in examples], score, split)
    logging.info("%s: %d %s", path, len(examples), form)
    return examples


def _check_scores(path: str, scores: Sequence[float | None], name: str, split: str) -> None:
    """Refuses scores without a difference, from which nothing can be learned, and numbers of classes, as in NLI."""
    if split != "test" and len(scores) > 1 == len(set(scores)):
        raise InputError(
            f"{path}: each {name} is {scores[0]:g}, so there is nothing to learn; drop this column if all pairs are "
            "right, or give pairs with other scores too"
        )
    if name == "label" and set(scores) in ({0, 1, 2}, {-1, 0, 1, 2}):
        raise InputError(f"{path}: {name} has the values 0, 1 and 2, which are probably classes, not scores; {_REMEDY}")


def _cells(cell: Any) -> list[Any]:
    """Returns the texts in a cell: one, a list, or none."""
    if isinstance(cell, list):
        return cell
    return [] if cells.is_missing(cell) else [cell]


def _checked(place: str, name: str, text: Any) -> str:
    text = without_surrogates(text) if isinstance(text, str) else text
    if not isinstance(text, str) or not text.strip():
        what = "is not a string" if _cells(text) else "is empty"
        raise InputError(f"{place}: {name} {what}; give a text in each row")
    return text


def read_collection(folder: str, split: str) -> list[CollectionText]:
    """Reads the queries of a split with their relevant documents, then all documents."""
    judged = [os.path.join(folder, "qrels", f"{name}.tsv") for name in _QRELS.get(split, _QRELS["test"])]
    path = next(filter(tf.io.gfile.exists, judged), judged[0])
    if split == "dev" and os.path.basename(path) == "test.tsv":
        logging.warning("%s: has no qrels/dev.tsv, so the test judgments %s are the dev data", folder, path)
    documents, queries = (texts_by_id(os.path.join(folder, f"{name}.jsonl")) for name in ("corpus", "queries"))
    relevant: dict[str, dict[str, float]] = {}
    absent: tuple[set[str], set[str]] = set(), set()
    for place, query, document, score in _judgments(path):
        gain = cells.number(place, {"score": score}, "score")
        for id, known, unknown in zip((query, document), (queries, documents), absent, strict=True):
            unknown |= set() if id in known else {id}
        if query in queries:  # a query without a relevant document counts as 0, as in trec_eval
            relevant.setdefault(query, {}).update({document: gain} if gain > 0 else {})
    if any(absent):
        logging.warning(
            "%s: %d queries are not in queries.jsonl and are left out; %d documents are not in corpus.jsonl, so no "
            "search finds them", path, *map(len, absent),
        )  # fmt: skip
    if not any(relevant.values()):
        raise InputError(f"{path}: names no relevant document (a score above 0); nothing can be measured")
    asked = [CollectionText(f"query {id}", (queries[id],), gains, place=path) for id, gains in relevant.items()]
    return asked + [CollectionText(id, (text,), place=folder) for id, text in documents.items()]


def _judgments(path: str) -> Iterator[tuple[str, str, str, str]]:
    """Yields the place, the query, the document and the score of each judgment. The columns have BEIR's names. Without
    a header, three columns are query, document and score; four are those of trec_eval, whose second column has no
    meaning."""
    layout = Layout("tsv", has_header=False, quoted=False)
    rows = [(place, list(row.values())) for place, row in files.rows(path, layout=layout)]
    names = rows[0][1] if rows else []
    if set(_JUDGMENT) <= set(names):
        places, rows = [names.index(name) for name in _JUDGMENT], rows[1:]
    elif len(names) in (3, 4):
        places = [0, len(names) - 2, len(names) - 1]
    else:
        raise InputError(f"{path}: has {len(names)} columns; give the columns {', '.join(_JUDGMENT)}")
    for place, row in rows:
        yield place, *(row[column] for column in places)


def texts_by_id(path: str) -> dict[str, str]:
    """Reads the texts of a `corpus.jsonl` or `queries.jsonl`; a title comes before its text."""
    return {id: f"{title} {text}".strip() for id, (title, text) in titled_texts(path).items()}


def titled_texts(path: str) -> dict[str, tuple[str, str]]:
    """Reads the titles and the texts of a `corpus.jsonl` or `queries.jsonl` by their ids; a title may be ""."""
    texts: dict[str, tuple[str, str]] = {}
    for place, entries in files.rows(path):
        id, title, text = (entries.get(name, "") for name in ("_id", "title", "text"))
        title = "" if title is None else title
        if not isinstance(id, str) or not id or id in texts:
            raise InputError(f"{place}: _id must be a string that no other line has; fix the line")
        if not isinstance(title, str) or not isinstance(text, str) or not f"{title}{text}".strip():
            raise InputError(f"{place}: the text is empty; give each line a text, and optionally a title")
        texts[id] = title, text
    return texts
