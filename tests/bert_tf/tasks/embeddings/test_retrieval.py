"""Exact search and the metrics of retrieval against a brute-force version."""

import numpy as np
import pytest

from bert_tf.finetuning.task import Split
from bert_tf.tasks.embeddings import retrieval
from bert_tf.tasks.embeddings.data import PAIRS, Texts
from bert_tf.tasks.embeddings.embedding_task import EmbeddingTask

RNG = np.random.default_rng(0)
QUERIES = RNG.normal(size=(7, 5)).astype(np.float32)
DOCUMENTS = RNG.normal(size=(150, 5)).astype(np.float32)
RELEVANT = [dict(zip(RNG.choice(150, 4, replace=False).tolist(), (1.0, 2.0, 1.0, 3.0), strict=True)) for _ in QUERIES]


def brute_force(values, gains):
    order = sorted(range(len(values)), key=lambda place: (-values[place], place))
    hits = [gains.get(place, 0.0) for place in order]
    dcg = sum(gain / np.log2(2 + at) for at, gain in enumerate(hits[:10]))
    ideal = sum(gain / np.log2(2 + at) for at, gain in enumerate(sorted(gains.values(), reverse=True)[:10]))
    first = next(at for at, gain in enumerate(hits, 1) if gain)
    found, precisions = 0, []
    for at, gain in enumerate(hits, 1):
        if gain:
            found += 1
            precisions.append(found / at)
    recalls = {f"recall@{k}": sum(gain > 0 for gain in hits[:k]) / len(gains) for k in (1, 10, 100)}
    return {"ndcg@10": dcg / ideal, "mrr@10": 1 / first if first <= 10 else 0.0, "map": np.mean(precisions), **recalls}


@pytest.mark.parametrize("in_memory", [1, 1 << 25])
def test_metrics_are_those_of_sorting_everything(monkeypatch, in_memory):
    monkeypatch.setattr(retrieval, "_COSINES", in_memory)
    rankings = retrieval.search(QUERIES, DOCUMENTS, [list(gains) for gains in RELEVANT])
    values = retrieval.normalized(QUERIES) @ retrieval.normalized(DOCUMENTS).T
    each = [brute_force(row, gains) for row, gains in zip(values.astype(np.float64), RELEVANT, strict=True)]
    expected = {name: np.mean([scores[name] for scores in each]) for name in each[0]}
    found = retrieval.mean_scores(rankings, RELEVANT, [()] * len(RELEVANT))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-6), name
    for ranking, row in zip(rankings, values, strict=True):
        np.testing.assert_array_equal(ranking.best, np.argsort(-row, kind="stable")[:3])


def test_an_anchor_does_not_find_itself():
    examples = [Texts(("a", "b"), PAIRS), Texts(("b", "c"), PAIRS)]
    angles = np.radians([0, 5, 5, 10], dtype=np.float32)
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1)
    scores = EmbeddingTask().scores(Split(examples, {}, np.array([0, 0, 1, 1])), vectors)
    assert scores["ndcg@10"] == scores["recall@1"] == 1.0


def test_first_of_equal_documents_has_lowest_rank():
    documents = np.float32([[1, 0], [0, 1], [0, 1], [0, 1]])
    (ranking,) = retrieval.search(np.float32([[0, 1]]), documents, [[2]])
    assert ranking.ranks.tolist() == [2] and ranking.best.tolist() == [1, 2, 3]
