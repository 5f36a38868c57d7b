"""Vectors, losses and gradients beside sentence-transformers and transformers, and scores beside trec_eval."""

import dataclasses
import json
import types

import numpy as np
import pytest
import pytrec_eval
import sentence_transformers
import tensorflow as tf
import torch
import transformers
from sentence_transformers import SentenceTransformer, losses, util

from bert_tf import checkpoints
from bert_tf.checkpoints import variables_by_path
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.tasks.embeddings.data import PAIRS, SCORED, Texts
from bert_tf.tasks.embeddings.embedding_task import CO_SENT, EmbeddingTask
from bert_tf.tasks.embeddings.prompts import VectorFiles
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.checkpoint_formats.models import their_name
from tests.bert_tf.tasks.embeddings import small_model
from tests.bert_tf.tasks.reading import read

pytestmark = pytest.mark.torch

GROUPS, SIZE = 6, 32
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(GROUPS, 3, SIZE)).astype(np.float32)
SCORES = np.float32([0.5, 4, 4, 1, 2.5, 3])


class Stub(torch.nn.Module):
    """A model whose features are the vectors themselves."""

    def forward(self, features):
        return {"sentence_embedding": features["vectors"], "token_embeddings": features["vectors"]}

    def get_embedding_dimension(self):
        return SIZE

    get_sentence_embedding_dimension = get_embedding_dimension


def theirs(make, columns: int):
    """Returns their loss, and its gradient with respect to the vectors, [groups, columns, size]."""
    vectors = torch.tensor(VECTORS[:, :columns], requires_grad=True)
    features = [{"vectors": vectors[:, number]} for number in range(columns)]
    loss = make(Stub())(features, torch.tensor(SCORES))
    loss.backward()
    return float(loss), vectors.grad.numpy()


def ours(task: EmbeddingTask, columns: int):
    vectors = tf.constant(VECTORS[:, :columns].reshape(-1, SIZE))
    batch = {
        "roles": tf.tile(tf.range(columns), [GROUPS]), "text_ids": tf.range(GROUPS * columns),
        "row_weights": tf.ones(GROUPS * columns), "label_ids": tf.repeat(tf.constant(SCORES), columns),
    }  # fmt: skip
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        values, weights = task.losses(vectors, batch)["loss"], task.weights(batch)
        loss = tf.reduce_sum(values * weights) / tf.reduce_sum(weights)
    return float(loss), tape.gradient(loss, vectors).numpy().reshape(GROUPS, columns, SIZE)


PLAIN = EmbeddingTask()
SIZES = (32, 16, 8)
CASES = {
    "triplets": (losses.MultipleNegativesRankingLoss, PLAIN, 3),
    "pairs": (losses.MultipleNegativesRankingLoss, PLAIN, 2),
    "symmetric": (losses.MultipleNegativesSymmetricRankingLoss, EmbeddingTask(both_directions=True), 2),
    "cosent": (losses.CoSENTLoss, EmbeddingTask(loss=CO_SENT), 2),
    "matryoshka": (
        lambda model: losses.MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), list(SIZES)),
        EmbeddingTask(files=VectorFiles(matryoshka_dims="32,16,8")), 3,
    ),
    "matryoshka of cosent": (
        lambda model: losses.MatryoshkaLoss(model, losses.CoSENTLoss(model), list(SIZES)),
        EmbeddingTask(loss=CO_SENT, files=VectorFiles(matryoshka_dims="32,16,8")), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_equal_sentence_transformers(case):
    make, task, columns = CASES[case]
    (loss, gradient), (expected, wanted) = ours(task, columns), theirs(make, columns)
    assert loss == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(gradient, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("loss", ["infonce", "cached", "cosent"])
def test_step_gradients_of_published_model_are_equal(minilm, loss):
    """From tokens to gradients; ours in two micro-batches, theirs cached or not."""
    texts = [("A plane takes off.", "An aircraft is leaving."), ("Who wrote Faust?", "Goethe."), ("Hi", "Hello there")]
    texts += [("The stock fell.", "Shares dropped by a tenth on Monday.")]
    scores = [4.0, 2.0, 3.0, 5.0]
    model = SentenceTransformer(str(minilm), device="cpu").eval()
    their_loss = {"infonce": losses.MultipleNegativesRankingLoss, "cosent": losses.CoSENTLoss}.get(
        loss, lambda model: losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)
    )(model)
    tokenize = getattr(model, "preprocess", None) or model.tokenize
    features = [util.batch_to_device(tokenize([pair[at] for pair in texts]), "cpu") for at in (0, 1)]
    value = their_loss(features, torch.tensor(scores))
    value.backward()
    wanted = {name.split("auto_model.")[-1].split("model.")[-1]: p.grad for name, p in model.named_parameters()}

    config = dataclasses.replace(
        checkpoints.read_config(str(minilm / "config.json")),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    form = SCORED if loss == "cosent" else PAIRS
    examples = [Texts(pair, form, score) for pair, score in zip(texts, scores, strict=True)]
    task = EmbeddingTask(loss=CO_SENT if loss == "cosent" else "infonce", files=VectorFiles(normalize=True))
    objective = small_model.objective_of(task, config)
    checkpoints.initialize(objective.model, str(minilm))
    batch = small_model.batch_of(task, examples, BertTokenizer(str(minilm / "vocab.txt")), slices=2)
    found, numerators = small_model.gradients(objective, batch, micro_batches=2)
    assert numerators["loss"] / len(texts) == pytest.approx(float(value), rel=1e-4)
    for path in ("encoder/embeddings/word_embeddings", "encoder/blocks/0/attention/query/kernel",
                 "encoder/blocks/5/output_dense/kernel", "encoder/blocks/3/attention_norm/gamma"):  # fmt: skip
        gradient = wanted[their_name(path).removeprefix("bert.")].numpy()
        if path.endswith("kernel"):
            gradient = gradient.T
        np.testing.assert_allclose(found[path].reshape(gradient.shape), gradient, atol=2e-5, err_msg=path)
    assert set(found) <= set(variables_by_path(objective.model))


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


TEXTS = [
    "A man is playing a guitar on stage.", "", "Short", "The café in Zürich cost 3,141 naïve visitors É!",
    "Two sentences, one text. They are about nothing in particular, and 中文 too \U0001f600.", "word " * 300,
    "A dog runs across the field while two children watch it from the fence.",
]  # fmt: skip


@pytest.fixture(scope="module")
def hidden_states(minilm):
    """Returns for each single text the embeddings and all layers, [7, tokens, 384]."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.BertModel.from_pretrained(minilm).eval()
    found = []
    for text in TEXTS:
        rows = tokenizer([text], truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            states = model(**rows, output_hidden_states=True).hidden_states
        found.append((rows.encodings[0], torch.cat(states).numpy()))
    return found


def test_layers_words_and_offsets_equal_transformers(minilm, hidden_states):
    extractor = FeatureExtractor(minilm, layers="0,1,2,3,4,5,6", max_seq_length=256)
    for ours, (encoding, states) in zip(extractor.tokens(TEXTS), hidden_states, strict=True):
        assert ours.tokens == encoding.tokens
        np.testing.assert_allclose(ours.values.transpose(1, 0, 2), states, atol=2e-5)
        assert [None if word == -1 else word for word in ours.words.tolist()] == encoding.words
        spans = list(zip(ours.starts.tolist(), ours.ends.tolist(), strict=True))
        assert spans[1:-1] == encoding.offsets[1:-1]


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_sentence_vectors_equal_published_pooling(minilm, hidden_states, pooling):
    pool = {"cls": lambda state: state[0], "mean": lambda state: state.mean(0), "max": lambda state: state.max(0)}
    expected = [pool[pooling](states[-1]) for _, states in hidden_states]
    found = FeatureExtractor(minilm, max_seq_length=256, pooling=pooling).sentences(TEXTS)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_sentence_vectors_equal_sentence_transformers(minilm):
    theirs = sentence_transformers.SentenceTransformer(str(minilm), device="cpu")
    extractor = FeatureExtractor(minilm, sentence_vectors=True)
    assert extractor.settings.max_seq_length == theirs.max_seq_length
    np.testing.assert_allclose(extractor.sentences(TEXTS), theirs.encode(TEXTS), atol=1e-5)
