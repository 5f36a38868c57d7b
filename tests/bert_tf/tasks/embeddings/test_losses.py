"""The losses of vectors and the metrics of retrieval against their formulas in NumPy and float64."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.task import Split
from bert_tf.tasks.embeddings import losses, retrieval
from bert_tf.tasks.embeddings.data import PAIRS, Texts
from bert_tf.tasks.embeddings.embedding_task import EmbeddingTask

RNG = np.random.default_rng(0)
GROUPS, SIZE, NEGATIVES = 5, 6, 2


def batch_of(roles, text_ids, row_weights=None, label_ids=None):
    count = len(roles)
    columns = {"roles": np.int32(roles), "text_ids": np.int32(text_ids)}
    columns["row_weights"] = np.ones(count, np.float32) if row_weights is None else np.float32(row_weights)
    columns["label_ids"] = np.zeros(count, np.float32) if label_ids is None else np.float32(label_ids)
    return {name: tf.constant(column) for name, column in columns.items()}


def cosines(a, b):
    a, b = (np.float64(x) / np.linalg.norm(np.float64(x), axis=-1, keepdims=True) for x in (a, b))
    return a @ b.T


def cross_entropy(scores, right):
    top = scores.max(axis=1)
    logsum = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    return logsum - scores[np.arange(len(scores)), right]


@pytest.fixture(scope="module")
def triplets():
    """Vectors of examples with an anchor, a positive and two negatives, then two padding rows."""
    vectors = RNG.normal(size=(GROUPS * (2 + NEGATIVES) + 2, SIZE)).astype(np.float32)
    roles = [*list(range(2 + NEGATIVES)) * GROUPS, 0, 0]
    weights = [1] * (len(roles) - 2) + [0, 0]
    return vectors, batch_of(roles, np.arange(len(roles)), weights)


@pytest.mark.parametrize("both", [False, True])
def test_positive_is_chosen_among_all_texts_of_batch(triplets, both):
    vectors, batch = triplets
    real = vectors[:-2].reshape(GROUPS, 2 + NEGATIVES, SIZE)
    candidates = real[:, 1:].reshape(-1, SIZE)
    scores = 20 * cosines(real[:, 0], candidates)
    expected = cross_entropy(scores, np.arange(GROUPS) * (1 + NEGATIVES))
    if both:
        expected = (expected + cross_entropy(20 * cosines(real[:, 1], real[:, 0]), np.arange(GROUPS))) / 2
    found = losses.info_nce(tf.constant(vectors), batch, 20.0, both)
    np.testing.assert_allclose(found["loss"][: -2 : 2 + NEGATIVES], expected, rtol=1e-5)
    right = scores.argmax(axis=1) == np.arange(GROUPS) * (1 + NEGATIVES)
    np.testing.assert_array_equal(found["accuracy"][: -2 : 2 + NEGATIVES], right)


@pytest.mark.parametrize("both", [False, True])
def test_right_texts_are_not_negatives(both):
    """The reference leaves out of each softmax what is equal to the anchor, to its positive or to another positive."""
    roles, text_ids = [], []
    for _ in range(12):  # few different texts, so that all cases occur
        negatives = int(RNG.integers(0, 3))
        roles += range(2 + negatives)
        text_ids += RNG.integers(0, 9, 2 + negatives).tolist()
    texts = RNG.normal(size=(9, SIZE)).astype(np.float32)
    vectors, roles, text_ids = texts[text_ids], np.array(roles), np.array(text_ids)
    anchors = np.flatnonzero(roles == 0)
    scores = 20 * cosines(vectors, vectors)

    def choice(asking, partner, candidates):
        values = []
        for row in asking:
            same = [other for other in asking if text_ids[other] == text_ids[row]]
            known = {text_ids[row], *(text_ids[other + partner] for other in same)}
            others = [place for place in candidates if text_ids[place] not in known]
            found = scores[row, [row + partner, *others]]
            values.append(np.logaddexp.reduce(found) - found[0])
        return np.array(values)

    expected = choice(anchors, 1, np.flatnonzero(roles > 0))
    if both:
        expected = (expected + choice(anchors + 1, -1, anchors)) / 2
    found = losses.info_nce(tf.constant(vectors), batch_of(roles, text_ids), 20.0, both)
    np.testing.assert_allclose(found["loss"].numpy()[anchors], expected, rtol=1e-4, atol=1e-5)


def test_cosent_loss_orders_cosines_by_scores():
    vectors = RNG.normal(size=(8, SIZE)).astype(np.float32)
    labels = [3.0, 1.0, 1.0, 2.5]
    batch = batch_of([0, 1] * 4, np.arange(8), [1] * 6 + [0, 0], np.repeat(labels, 2))
    c = 20 * np.diag(cosines(vectors[::2], vectors[1::2]))
    pairs = [(i, j) for i in range(3) for j in range(3) if labels[i] > labels[j]]
    expected = np.log(1 + sum(np.exp(c[j] - c[i]) for i, j in pairs))
    found = losses.co_sent(tf.constant(vectors), batch, 20.0)
    np.testing.assert_allclose(found["loss"], np.full(8, expected), rtol=1e-5)


def test_matryoshka_loss_is_sum_over_vector_prefixes(triplets):
    vectors, batch = triplets

    def of(part):
        return losses.info_nce(part, batch, 20.0)

    found = losses.matryoshka(of, tf.constant(vectors), (6, 4, 2))
    expected = sum(of(tf.constant(vectors[:, :size]))["loss"] for size in (6, 4, 2))
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-6)
    np.testing.assert_array_equal(found["accuracy"], of(tf.constant(vectors))["accuracy"])


DRAWN = np.random.default_rng(0)
QUERIES = DRAWN.normal(size=(7, 5)).astype(np.float32)
DOCUMENTS = DRAWN.normal(size=(150, 5)).astype(np.float32)
RELEVANT = [dict(zip(DRAWN.choice(150, 4, replace=False).tolist(), (1.0, 2.0, 1.0, 3.0), strict=True)) for _ in QUERIES]


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
    monkeypatch.setattr(retrieval, "_IN_MEMORY", in_memory)
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
