"""The kind of task that maps texts to vectors, for the registry."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks.embeddings.embedding_task import EMBEDDINGS, EmbeddingTask, embedding_task
from bert_tf.tasks.embeddings.prompts import VectorFiles
from bert_tf.tasks.embeddings.settings import EmbeddingSettings
from bert_tf.tasks.registry import TaskKind
from bert_tf.tasks.report_parts import MOST_ERRORS, Histogram, Part, Table, of_lines, short


def _task_of(described: TaskDescription, folder: str) -> EmbeddingTask:
    del folder
    return EmbeddingTask(files=VectorFiles(**described.parameters))


def _report(entries: Sequence[Mapping], labels: Sequence[str]) -> list[Part]:
    del labels
    return _of_queries(entries) if "rank" in entries[0] else _of_scores(entries)


def _of_queries(entries: Sequence[Mapping]) -> list[Part]:
    """Returns the queries with the lowest nDCG@10, and the similarities of right and wrong documents."""
    missed = sorted((e for e in entries if e["rank"] > 1), key=lambda e: (e["ndcg@10"], -e["rank"]))
    rows = [
        [f"{e['rank']:,}", short(e["text_a"]), f"{e['label']} ({e['similarity']:.3f})",
         f"{e['prediction']} ({e['wrong_similarity']:.3f})"]
        for e in missed[:MOST_ERRORS]
    ]  # fmt: skip
    note = f"{len(missed):,} of {len(entries):,} queries have a wrong document first. The rank is the right document's."
    groups = {
        "right documents": np.array([e["similarity"] for e in entries]),
        "most similar wrong documents": np.array(
            [e["wrong_similarity"] for e in entries if e["wrong_similarity"] is not None]
        ),
    }
    head = ["rank", "query", "right document (similarity)", "first document (similarity)"]
    diagram = Histogram("Similarities with the queries", groups, "similarity")
    return [diagram, Table("Worst queries", head, rows, note, is_text=True)]


def _of_scores(entries: Sequence[Mapping]) -> list[Part]:
    """Returns the similarities by the scores, and the pairs whose ranks differ most."""
    labels, similarities = (np.array([entry[name] for entry in entries]) for name in ("label", "prediction"))
    middle = np.median(labels)
    groups = {"scores above the median": similarities[labels > middle], "other scores": similarities[labels <= middle]}
    places = [np.argsort(np.argsort(values)) / len(entries) for values in (similarities, labels)]
    order = np.argsort(-np.abs(places[0] - places[1]), kind="stable")[:MOST_ERRORS].tolist()
    rows = [
        [f"{labels[number]:.4g}", f"{similarities[number]:.3f}",
         *(short(entries[number][name]) for name in ("text_a", "text_b"))]
        for number in order
    ]  # fmt: skip
    note = "The pairs whose places in the orders of the scores and of the similarities differ most."
    table = Table("Worst pairs", ["score", "similarity", "text", "second text"], rows, note, is_text=True)
    return [Histogram("Similarities", groups, "similarity"), table]


KINDS = [TaskKind(EMBEDDINGS, EmbeddingSettings, embedding_task, _task_of, of_lines(_report))]
