"""Models of sentence-transformers, loaded as they are published: vectors, similarities and search."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.evaluation import InformationRetrievalEvaluator

from bert_tf import TextClassifier, TextEmbedder
from bert_tf.core import hub
from bert_tf.core.command_line import parse
from bert_tf.core.errors import InputError
from bert_tf.mining import mine
from bert_tf.run_classifier import main as run_classifier
from bert_tf.run_embeddings import main as run_embeddings
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.embeddings.settings import EmbeddingSettings, MiningSettings
from export.saved_model import export_saved_model
from export.settings import ExportSettings

pytestmark = pytest.mark.torch

TEXTS = ["a film about a dog", "the dog in the movie", "stock prices fell", "what is the capital of France ?", "a"]
QUERIES, DOCUMENTS = TEXTS[:2], [*TEXTS[2:], "the movie", "a dog and a longer text about many films in the cinema"]


def published(minilm, folder, is_normalized, **entries):
    """Copies MiniLM, and writes what its files state."""
    shutil.copytree(minilm, folder)
    modules = json.loads((folder / "modules.json").read_text())
    kept = [module for module in modules if is_normalized or not module["type"].endswith("Normalize")]
    (folder / "modules.json").write_text(json.dumps(kept))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(entries))
    return str(folder)


@pytest.mark.parametrize("is_normalized", [True, False])
@pytest.mark.parametrize(
    ("similarity", "size"), [(None, None), ("dot", 64), ("euclidean", None), ("manhattan", 32), ("cosine", 16)]
)
def test_vectors_and_similarities_are_theirs(minilm, tmp_path, is_normalized, similarity, size):
    prompts = {"prompts": {"ask": "ask: "}, "default_prompt_name": "ask"}
    entries = {"similarity_fn_name": similarity, "truncate_dim": size}
    folder = published(minilm, tmp_path / "model", is_normalized, **prompts, **entries)
    theirs, ours = SentenceTransformer(folder), TextEmbedder.load(folder)
    vectors = theirs.encode(TEXTS)
    np.testing.assert_allclose(ours.encode(TEXTS), vectors, atol=1e-5)
    np.testing.assert_allclose(ours.similarity(TEXTS, TEXTS), theirs.similarity(vectors, vectors), atol=1e-4)
    for name, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        np.testing.assert_allclose(ours.encode(TEXTS, name), encode(TEXTS), atol=1e-5, err_msg=name)
    version = export_saved_model(ExportSettings(checkpoint_dir=folder, export_dir=str(tmp_path / "export")))
    served = tf.saved_model.load(version).signatures["serving_default"](text=tf.constant(TEXTS))["embedding"]
    np.testing.assert_allclose(served, vectors, atol=1e-5)


@pytest.mark.parametrize("similarity", ["dot", "euclidean", "cosine"])
def test_search_uses_the_stated_similarity(minilm, tmp_path, similarity):
    folder = published(minilm, tmp_path / "model", False, similarity_fn_name=similarity)
    queries, documents = ({str(number): text for number, text in enumerate(texts)} for texts in (QUERIES, DOCUMENTS))
    relevant = {"0": {"4"}, "1": {"3"}}
    evaluator = InformationRetrievalEvaluator(queries, documents, relevant, mrr_at_k=[10], ndcg_at_k=[10])
    expected = evaluator(SentenceTransformer(folder))
    write_collection(tmp_path / "coll", queries, documents, relevant)
    flags = {"init_checkpoint": folder, "eval_data_path": f"{tmp_path}/coll", "do_eval": True, "do_train": False}
    scores = run_embeddings(EmbeddingSettings(output_dir=str(tmp_path / "run"), **flags))
    for ours, theirs in (("ndcg@10", "ndcg@10"), ("mrr@10", "mrr@10")):
        (found,) = (value for name, value in expected.items() if name.endswith(f"{similarity}_{theirs}"))
        np.testing.assert_allclose(scores[ours], found, atol=1e-6)


def write_collection(folder, queries, documents, relevant):
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("queries", queries), ("corpus", documents)):
        rows = ({"_id": id_, "text": text} for id_, text in texts.items())
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = (f"{query}\t{document}\t1\n" for query, of_query in relevant.items() for document in of_query)
    (folder / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))


@pytest.mark.parametrize("similarity", ["dot", "euclidean"])
def test_negatives_are_the_most_similar_texts(minilm, tmp_path, similarity):
    """The default prompt is put neither before anchors nor before documents."""
    prompts = {"prompts": {"ask": "ask about films: "}, "default_prompt_name": "ask"}
    folder = published(minilm, tmp_path / "model", False, similarity_fn_name=similarity, **prompts)
    pairs = [{"anchor": query, "positive": DOCUMENTS[0]} for query in QUERIES]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (tmp_path / "corpus.txt").write_text("\n".join(DOCUMENTS))
    files = {"input_file": f"{tmp_path}/pairs.jsonl", "corpus_file": f"{tmp_path}/corpus.txt"}
    output = tmp_path / "mined.jsonl"
    options = {"margin": -1e9, "sampling": "top", "num_negatives": 2}
    mine(MiningSettings(init_checkpoint=folder, output_file=str(output), **files, **options))
    theirs = SentenceTransformer(folder)
    values = theirs.similarity(theirs.encode_query(QUERIES), theirs.encode_document(DOCUMENTS[1:])).numpy()
    for line, row in zip(output.read_text().splitlines(), values, strict=True):
        best = [DOCUMENTS[1:][place] for place in np.argsort(-row)[:2]]
        assert [json.loads(line)[f"negative_{number}"] for number in (1, 2)] == best


def test_an_unknown_similarity_is_refused(minilm, tmp_path):
    folder = published(minilm, tmp_path / "model", True, similarity_fn_name="jaccard")
    with pytest.raises(InputError, match=r"similarity_fn_name is 'jaccard'; only cosine, dot, euclidean, manhattan"):
        TextEmbedder.load(folder)


@pytest.mark.parametrize("activation", [None, "Identity", "Sigmoid", "older"])
def test_a_cross_encoder_scores_pairs_as_there(vocab_file, tmp_path, activation):
    config = transformers.BertConfig(
        vocab_size=300, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, num_labels=1, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "base")
    transformers.BertTokenizer(vocab_file).save_pretrained(tmp_path / "base")
    options = {} if activation in (None, "older") else {"activation_fn": getattr(torch.nn, activation)()}
    theirs, folder = CrossEncoder(str(tmp_path / "base"), num_labels=1, **options), str(tmp_path / "model")
    theirs.save_pretrained(folder)
    if activation == "older":  # as the published models of MS MARCO
        (tmp_path / "model/config_sentence_transformers.json").unlink()
        path = tmp_path / "model/config.json"
        entries = json.loads(path.read_text()) | {
            "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.1"},
        }  # fmt: skip
        path.write_text(json.dumps(entries))
        theirs = CrossEncoder(folder)
    pairs = [("the man said", "he was there"), ("all of you", "they had their work"), ("is it late", "on time")]
    expected = theirs.predict(pairs)
    np.testing.assert_allclose(TextClassifier.load(folder, has_pairs=True).predict(pairs), expected, atol=1e-5)
    options = {"checkpoint_dir": folder, "export_dir": str(tmp_path / "export"), "has_pairs": True}
    served = tf.saved_model.load(export_saved_model(ExportSettings(**options))).signatures["serving_default"]
    first, second = (tf.constant(texts) for texts in zip(*pairs, strict=True))
    np.testing.assert_allclose(served(text_a=first, text_b=second)["score"], expected, atol=1e-5)
    rows = "".join(f"{one}\t{two}\t{number / 3}\n" for number, (one, two) in enumerate(pairs))
    (tmp_path / "test.tsv").write_text(f"a\tb\tlabel\n{rows}")
    run_classifier(parse(ClassifierSettings, [
        f"--init_checkpoint={folder}", f"--output_dir={tmp_path}/run", "--do_predict", "--task_name=own",
        f"--test_data_path={tmp_path}/test.tsv", "--text_a_column=a", "--text_b_column=b", "--regression",
    ]))  # fmt: skip
    found = np.loadtxt(tmp_path / "run/test_results.tsv")
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_model_of_the_hub_is_loaded_by_name(minilm, monkeypatch):
    monkeypatch.setattr(hub, "download", lambda name: str(minilm))
    embedder = TextEmbedder.load("hf://sentence-transformers/all-MiniLM-L6-v2")
    theirs = SentenceTransformer(str(minilm))
    np.testing.assert_allclose(embedder.encode(TEXTS), theirs.encode(TEXTS), atol=1e-5)
