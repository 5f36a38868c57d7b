"""Exact search by the similarity of vectors, and the metrics of retrieval.

nDCG: K. Jarvelin and J. Kekalainen, "Cumulated Gain-Based Evaluation of IR Techniques", 2002; the gain is
linear, as in trec_eval.

Letters: Q queries, D documents.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

# Number of similarities that are in memory at the same time.
_IN_MEMORY = 1 << 25
# SciPy's names of the distances.
_METRICS = {"euclidean": "euclidean", "manhattan": "cityblock"}
_CUTOFF = 10
_RECALLS = (1, 10, 100)
METRICS = (f"ndcg@{_CUTOFF}", f"mrr@{_CUTOFF}", "map", *(f"recall@{count}" for count in _RECALLS))


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The result of a search for one query."""

    # float64 [relevant documents], the rank of each relevant document from 1, in the order of the query's documents;
    # infinite if the search leaves the document out
    ranks: np.ndarray
    similarities: np.ndarray  # float32 [relevant documents]
    best: np.ndarray  # int [M], the indices of the most similar documents, in descending order
    best_similarities: np.ndarray  # float32 [M]


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Scales vectors, float32 [..., H], to length 1; a vector of zeros stays as it is."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def similarities(queries: np.ndarray, documents: np.ndarray, similarity: str) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the index of each query, and its similarities with all documents, float32 [D].
    `similarity`: a name in `sentence_transformers.SIMILARITIES`. Distances are negative, so higher is more similar."""
    if similarity == "cosine":
        queries, documents = normalized(queries), normalized(documents)
    size = max(1, _IN_MEMORY // max(1, len(documents)))
    for start in range(0, len(queries), size):
        yield from enumerate(_products_or_distances(queries[start : start + size], documents, similarity), start)


def _products_or_distances(queries: np.ndarray, documents: np.ndarray, similarity: str) -> np.ndarray:
    if similarity in _METRICS:
        import scipy.spatial.distance  # takes most of a second, and all scripts import all kinds

        return -scipy.spatial.distance.cdist(queries, documents, _METRICS[similarity]).astype(np.float32)
    return queries @ documents.T


def pair_similarities(first: np.ndarray, second: np.ndarray, similarity: str) -> np.ndarray:
    """Returns the similarity of each vector with the vector in the same row, float32 [N]; see `similarities`."""
    if similarity == "cosine":
        first, second = normalized(first), normalized(second)
    if similarity in _METRICS:
        return -np.linalg.norm(first - second, 1 if similarity == "manhattan" else 2, axis=1)
    return np.sum(first * second, axis=1)


def highest(values: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the highest values in descending order; of equal values, the first comes first."""
    count = min(count, len(values))
    if count < len(values):
        least = np.partition(values, len(values) - count)[len(values) - count]
        candidates = np.flatnonzero(values >= least)
    else:
        candidates = np.arange(len(values))
    return candidates[np.argsort(-values[candidates], kind="stable")][:count]


def search(
    queries: np.ndarray,
    documents: np.ndarray,
    relevant: Sequence[Sequence[int]],
    shown: int = 3,
    left_out: Mapping[int, int] = {},
    similarity: str = "cosine",
) -> list[Ranking]:
    """Ranks all documents for each query, exactly. Of equally similar documents, the first has the lowest rank.
    `queries`: float32 [Q, H].
    `documents`: float32 [D, H].
    `relevant`: for each query, the indices of its relevant documents.
    `shown`: M, number of the best documents to return.
    `left_out`: for some queries, the index of a document that is not ranked.
    `similarity`: see `similarities`."""
    rankings = []
    for number, values in similarities(queries, documents, similarity):
        if number in left_out:
            values = values.copy()
            values[left_out[number]] = -np.inf
        wanted = np.asarray(relevant[number], np.int64)
        own = values[wanted]
        ranks = [1 + int((values > value).sum()) + int((values[:place] == value).sum())
                 if np.isfinite(value) else np.inf for place, value in zip(wanted, own, strict=True)]  # fmt: skip
        best = highest(values, shown)
        best = best[np.isfinite(values[best])]
        rankings.append(Ranking(np.array(ranks, np.float64), own, best, values[best]))
    return rankings


def query_scores(ranking: Ranking, gains: Sequence[float], absent: Sequence[float] = ()) -> dict[str, float]:
    """Returns the metrics of one query, as trec_eval computes them; all are 0 if the query has no relevant document.
    `gains`: the gain of each relevant document, above 0.
    `absent`: the gains of relevant documents that are not in the collection. The best possible ranking has them."""
    ranks = np.append(ranking.ranks, np.full(len(absent), np.inf))
    gains = np.append(np.asarray(gains, np.float64), absent)
    if not len(gains):
        return dict.fromkeys(METRICS, 0.0)
    in_order = np.sort(ranks)
    is_within = ranks <= _CUTOFF
    ideal = np.sort(gains)[::-1][:_CUTOFF]
    best = float((ideal / np.log2(1 + np.arange(1, len(ideal) + 1))).sum())
    scores = {
        f"ndcg@{_CUTOFF}": float((gains[is_within] / np.log2(1 + ranks[is_within])).sum()) / best,
        f"mrr@{_CUTOFF}": 1 / float(in_order[0]) if in_order[0] <= _CUTOFF else 0.0,
        "map": float(np.mean(np.arange(1, len(ranks) + 1) / in_order)),
    }
    return scores | {f"recall@{count}": float((ranks <= count).mean()) for count in _RECALLS}


def mean_scores(
    rankings: Sequence[Ranking], relevant: Sequence[Mapping[int, float]], absent: Sequence[Sequence[float]]
) -> dict[str, float]:
    """Returns the means of the metrics over the queries.
    `relevant`: for each query, the gains of its relevant documents by their indices.
    `absent`: see `query_scores`."""
    queries = zip(rankings, relevant, absent, strict=True)
    of_queries = [query_scores(one, list(gains.values()), missing) for one, gains, missing in queries]
    return {name: float(np.mean([scores[name] for scores in of_queries])) for name in of_queries[0]}
