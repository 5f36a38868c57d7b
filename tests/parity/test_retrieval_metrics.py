"""The scores of a collection equal those of trec_eval, with the conventions of BEIR."""

import json
import types

import numpy as np
import pytest
import pytrec_eval

from bert_tf.tasks.embeddings.embedding_task import EmbeddingTask
from tests.bert_tf.tasks.reading import read

pytestmark = pytest.mark.torch

THEIRS = {"ndcg@10": "ndcg_cut_10", "map": "map", "recall@1": "recall_1", "recall@10": "recall_10",
          "recall@100": "recall_100"}  # fmt: skip


def test_a_collection_has_the_scores_of_trec_eval(tmp_path):
    """Queries that are documents, queries without a relevant document, and judged documents that are absent."""
    rng = np.random.default_rng(0)
    documents, queries = [f"t{number}" for number in range(200)], [f"t{number}" for number in range(0, 60, 2)]
    judged = {query: {f"t{rng.integers(0, 230)}": int(rng.integers(0, 3)) for _ in range(6)} for query in queries}
    judged["t2"] = dict.fromkeys(judged["t2"], 0)
    judged["t4"]["t4"] = 2
    for name, ids in (("corpus", documents), ("queries", queries)):
        lines = (json.dumps({"_id": id, "text": f"{name} {id}"}) for id in ids)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    (tmp_path / "qrels").mkdir()
    lines = [f"{query}\t{document}\t{gain}" for query, gains in judged.items() for document, gain in gains.items()]
    (tmp_path / "qrels/dev.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    examples = read("embeddings", tmp_path, "dev")
    vectors = rng.normal(size=(len(examples), 8)).astype(np.float32)
    found = EmbeddingTask().scores(
        types.SimpleNamespace(examples=examples, example_ids=np.arange(len(examples))), vectors
    )

    unit = vectors.astype(np.float64) / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit[: len(queries)] @ unit[len(queries) :].T
    run = {
        query: {document: value for document, value in zip(documents, row.tolist(), strict=True) if document != query}
        for query, row in zip(queries, cosines, strict=True)
    }
    scores = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "map", "recall.1,10,100"}).evaluate(run)
    assert len(scores) == len(queries)
    for ours, theirs in THEIRS.items():
        assert found[ours] == pytest.approx(np.mean([each[theirs] for each in scores.values()]), abs=1e-6), ours
