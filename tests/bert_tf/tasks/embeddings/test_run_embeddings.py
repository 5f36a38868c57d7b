"""Whole runs of `run_embeddings` and what follows: evaluation, conversion, export, mining, and the Python class."""

import json
import math

import numpy as np
import pandas
import pytest
import tensorflow as tf

from bert_tf import embedder
from bert_tf.embedder import TextEmbedder
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.tasks.embeddings import retrieval
from export.saved_model import export_saved_model
from export.settings import ExportSettings
from tests import kit
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.bert_tf.tasks.embeddings import small_model
from tests.bert_tf.tasks.embeddings.test_embedding_data import collection, rows, write
from tests.kit import read_jsonl, refused, run

TEXTS = ["the man said", "he had all his work", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocab_file):
    """A pre-trained model, and pairs, scored pairs, single texts and a collection."""
    folder = tmp_path_factory.mktemp("embeddings")
    write_pretrained(folder / "start", vocab_file)
    pairs = [
        dict(zip(("anchor", "positive", "negative_1"), one.texts, strict=True)) for one in small_model.examples(24)
    ]
    write(folder / "pairs.jsonl", *rows(*pairs))
    scored = [f"{one.texts[0]}\t{one.texts[1]}\t{one.label}" for one in small_model.examples(24, scored=True)]
    write(folder / "scored.tsv", "sentence1\tsentence2\tscore", *scored)
    write(folder / "texts.tsv", "text", *(one.texts[0] for one in small_model.examples(24)))
    collection(folder / "collection")
    config = json.loads((folder / "start/bert_config.json").read_text())
    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "no_dropout.json").write_text(json.dumps(config | without))
    return folder


def train(folder, output, *more):
    return run(
        "run_embeddings", f"--init_checkpoint={folder}/start", f"--output_dir={output}", "--max_seq_length=16",
        "--train_batch_size=8", "--eval_batch_size=8", "--predict_batch_size=8", "--learning_rate=1e-3", *more,
    )  # fmt: skip


TRAINED = ("--do_train", "--do_eval", "--eval_strategy=epoch", "--matryoshka_dims=16,8", "--query_prefix=was ",
           "--normalize", "--gradient_accumulation_steps=2", "--num_train_epochs=2")  # fmt: skip


@pytest.fixture(scope="module")
def trained(folder):
    output = folder / "trained"
    data = f"--train_data_path={folder}/pairs.jsonl", f"--eval_data_path={folder}/scored.tsv"
    return output, train(folder, output, *TRAINED, *data)


def test_trains_on_pairs_and_evaluates_on_scores(folder, trained):
    output, scores = trained
    assert list(scores) == ["spearman", "pearson", "spearman_8"]
    lines = read_jsonl(output / "metrics.jsonl")
    assert {"loss", "accuracy"} <= next(line for line in lines if line["split"] == "train").keys()
    report = (output / "report.html").read_text()
    assert "Worst pairs" in report and "scores above the median" in report
    again = train(folder, output, "--do_eval", f"--eval_data_path={folder}/scored.tsv")
    assert again == pytest.approx(scores)


def test_a_collection_and_pairs_are_searched(folder, trained):
    output, _ = trained
    names = ["ndcg@10", "mrr@10", "map", "recall@1", "recall@10", "recall@100", "ndcg@10_8"]
    for data in ("collection", "pairs.jsonl"):
        path = f"{folder}/{data}"
        scores = train(folder, output, "--do_eval", f"--eval_data_path={path}")
        assert list(scores) == names
    train(folder, output, "--do_predict", f"--test_data_path={folder}/collection")
    lines = (output / "test_predictions.trec").read_text().splitlines()
    assert [line.split()[:2] + line.split()[3:4] for line in lines] == [
        ["q1", "Q0", "1"], ["q1", "Q0", "2"], ["q2", "Q0", "1"], ["q2", "Q0", "2"]
    ]  # fmt: skip
    assert "Worst queries" in (output / "report.html").read_text()


@pytest.mark.slow
def test_vectors_are_equal_wherever_computed(folder, trained, tmp_path):
    output, _ = trained
    model = TextEmbedder.load(str(output))
    plain, asked = model.encode(TEXTS), model.encode(TEXTS, "query")
    np.testing.assert_allclose(np.linalg.norm(plain, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        asked, FeatureExtractor(str(output), sentence_vectors=True, prompt="was ").sentences(TEXTS)
    )
    assert np.abs(asked - plain).max() > 1e-3, "the prefix has an effect"
    model.save(str(tmp_path / "saved"))
    for format in ("sentence_transformers", "bert_tf"):
        run("convert_checkpoint", input=output, output=tmp_path / format, format=format)
    for copied in ("saved", "sentence_transformers", "bert_tf"):
        extractor = FeatureExtractor(str(tmp_path / copied), sentence_vectors=True, prompt_name="query")
        np.testing.assert_allclose(extractor.sentences(TEXTS), asked, atol=1e-5, err_msg=copied)
    settings = ExportSettings(checkpoint_dir=str(output), export_dir=str(tmp_path / "model"), dimensions=8)
    served = tf.saved_model.load(export_saved_model(settings)).signatures
    for signature, prompt in (("serving_default", ""), ("query", "query")):
        found = served[signature](text=tf.constant(TEXTS))["embedding"]
        np.testing.assert_allclose(found, model.encode(TEXTS, prompt, dimensions=8), atol=1e-5)


@pytest.mark.slow
def test_same_scores_after_lost_checkpoints(folder, tmp_path):
    data = f"--train_data_path={folder}/pairs.jsonl", f"--eval_data_path={folder}/scored.tsv"
    given = (folder, tmp_path / "run", *TRAINED, *data, "--save_checkpoints_steps=1", "--keep_checkpoint_max=0")
    expected = train(*given)
    for index in (tmp_path / "run").glob("ckpt-[456]*"):
        index.unlink()
    (tmp_path / "run/checkpoint").unlink()
    assert train(*given) == pytest.approx(expected)


@pytest.mark.parametrize("data", ["scored.tsv", "texts.tsv"])
def test_scored_pairs_and_single_texts_train(folder, tmp_path, data):
    flags = ("--do_train", f"--train_data_path={folder}/{data}", "--num_train_epochs=1")
    assert train(folder, tmp_path / "run", *flags) == {}
    lines = read_jsonl(tmp_path / "run/metrics.jsonl")
    assert all(np.isfinite(line["loss"]) for line in lines if line["split"] == "train")


def test_a_model_is_evaluated_before_its_training(folder, tmp_path):
    scores = train(folder, tmp_path / "run", "--do_eval", f"--eval_data_path={folder}/scored.tsv")
    assert scores.keys() == {"spearman", "pearson"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--train_data_path={0}/scored.tsv", "--loss=infonce"], "the training data holds scored pairs, whose loss is"),
        (["--train_data_path={0}/collection"], "a collection is for evaluation"),
        (["--train_data_path={0}/pairs.jsonl", "--matryoshka_dims=8,16"], "must fall, from at most 16"),
        (["--train_data_path={0}/pairs.jsonl", "--matryoshka_dims=32,8"], "must fall, from at most 16"),
        (["--train_data_path={0}/pairs.jsonl", "--matryoshka_dims=a"], "give whole numbers"),
        (["--train_data_path={0}/texts.tsv", "--bert_config_file={0}/no_dropout.json"], "the model has no dropout"),
        (["--train_data_path={0}/pairs.jsonl", "--do_eval", "--eval_data_path={0}/texts.tsv"], "cannot be evaluated"),
        (["--train_data_path={0}/pairs.jsonl", "--train_batch_size=1"], "compares the rows of a batch"),
        (["--train_data_path={0}/pairs.jsonl", "--bilstm_head"], "drop the flag"),
    ],
)
def test_data_and_flags_that_do_not_fit_are_refused(folder, tmp_path, more, message):
    refused(message, train, folder, tmp_path / "run", "--do_train", *(flag.format(folder) for flag in more))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_python_class_trains_on_lists(folder, tmp_path):
    pairs = [one.texts[:2] for one in small_model.examples(16)]
    settings = {"max_seq_length": 16, "train_batch_size": 8, "num_train_epochs": 1}
    arguments = pairs, str(folder / "start"), str(tmp_path / "run")
    model = TextEmbedder.train(*arguments, dev=pairs, **settings)
    assert model.scores["recall@100"] == 1.0
    assert model.encode(["the man"]).shape == (1, 16)
    assert TextEmbedder.train(*arguments, dev=pairs, **settings).scores == pytest.approx(model.scores), "resumed"
    assert repr(model).startswith(f"TextEmbedder('{tmp_path}/run': embeddings; ") and "ndcg@10" in repr(model)
    np.testing.assert_allclose(model.encode("the man"), model.encode(["the man"])[0])
    np.testing.assert_allclose(model.encode(TEXTS, batch_size=1), model.encode(TEXTS), atol=1e-6)
    message = r"start: has no head for a task; .*FeatureExtractor.of_texts"
    refused(message, TextEmbedder.load, str(folder / "start"))
    vectors = retrieval.normalized(model.encode(["the man", "was"]))
    np.testing.assert_allclose(model.similarity(["the man"], ["was"]), vectors[:1] @ vectors[1:].T, atol=1e-6)
    expected = {name: value for name, value in model.scores.items() if name != "loss" and name != "accuracy"}
    np.testing.assert_array_equal(model.similarity("the man", ["was"]), model.similarity(["the man"], ["was"]))
    assert model.evaluate(pairs) == pytest.approx(expected, rel=1e-4)
    rows = [dict(zip(("anchor", "positive"), pair, strict=True)) for pair in pairs]
    for table in (rows, pandas.DataFrame(rows)):
        assert model.evaluate(table) == pytest.approx(expected, rel=1e-4)
    scored = [(*pair, np.float32(number)) for number, pair in enumerate(pairs)]
    assert "spearman" in model.evaluate(scored)
    message = r"dev: .*run was evaluated on other texts .*; give the same texts, or"
    refused(message, TextEmbedder.train, *arguments, dev=pairs[:8], **settings)


@pytest.mark.parametrize(
    "given",
    [
        ["a", ("b", "c")], [("a", "")], [], [("a", 1.0)], [("a", "b", math.nan)], {"anchor": ["a"]}, [{"text": 1}],
        ["a", None], ["a", math.nan], [()], ["\ud83d"], {"a", "b"}, {"text": []}, [{"text": "a"}, "b"],
    ],
)  # fmt: skip
def test_what_is_no_list_of_examples_is_refused(tmp_path, given):
    refused("examples", TextEmbedder.train, given, "nowhere", tmp_path)


@pytest.mark.parametrize("other", ["c", ("c", "d", 0.5)])
def test_examples_of_two_forms_are_refused_by_place(tmp_path, other):
    message = r"examples\[1\]: has another form than examples\[0\]; give examples of one form"
    refused(message, TextEmbedder.train, [("a", "b"), other], "nowhere", tmp_path)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"num_train_epoch": 1}, "num_train_epoch: no such argument; did you mean num_train_epochs"),
        ({"epochs": 1}, "epochs: no such argument; did you mean .*num_train_epochs"),
        ({"train_data_path": "a.tsv"}, "train_data_path and examples in memory are two data sets; drop one of them"),
        ({"dev": ["a"], "dev_share": 0.5}, "dev and dev_share: each gives the dev data; drop all but one"),
        ({"do_eval": True}, "there are no dev examples in memory; give dev"),
        ({"dev": [("a", "b", 1)], "output_dir": "{0}/trained"}, "trained was evaluated on other texts"),
    ],
)
def test_settings_unfit_for_examples_are_refused(folder, trained, tmp_path, more, message):
    given = {"output_dir": tmp_path / "run", **more}
    given["output_dir"] = str(given["output_dir"]).format(folder)
    refused(message, TextEmbedder.train, [("a", "b")], folder / "start", **given)


@pytest.mark.parametrize(
    ("share", "file", "title", "count"),
    [
        (0.25, None, "0.25 of train examples in memory", 8),
        (None, "scored.tsv", "scored.tsv", 24),
        (None, "collection", "collection", 4),
    ],
)
def test_settings_name_dev_data(folder, tmp_path, monkeypatch, share, file, title, count):
    def stop(settings, make_task, *_):
        raise StopIteration(settings.do_eval, make_task(None).data)

    monkeypatch.setattr(embedder, "run_finetuning", stop)
    given = {"dev_share": share, "eval_data_path": file and folder / file}
    pairs = [one.texts[:2] for one in small_model.examples(16)] * 2
    with pytest.raises(StopIteration) as found:
        TextEmbedder.train(zip(*zip(*pairs, strict=True), strict=True), folder / "start", tmp_path / "run", **given)
    do_eval, data = found.value.args
    assert do_eval and data.title("dev") == title and len(data.read("dev")) == count
    assert not share or not {one.texts for one in data.read("dev")} & {one.texts for one in data.read("train")}


@pytest.fixture
def mined(folder, tmp_path):
    """Returns a function that mines negatives for pairs from texts, and returns the new columns of each pair."""

    def mine(pairs, texts, **flags):
        files = {"input_file": tmp_path / "pairs.jsonl", "corpus_file": tmp_path / "corpus.jsonl"}
        for path, found in zip(files.values(), (pairs, texts), strict=True):
            kit.write(path, found)
        output = tmp_path / "mined.jsonl"
        run("mine_negatives", init_checkpoint=folder / "start", **files | {"output_file": output} | flags)
        return [[row[name] for name in row if name.startswith("negative")] for row in read_jsonl(output)]

    return mine


MAN = [{"anchor": "man", "positive": "the man said"}, {"anchor": "man", "positive": "was"}]
CORPUS = [{"text": text} for text in dict.fromkeys([*small_model.WORDS, "the man said"])]


def test_mined_negatives_are_similar_and_not_positive(folder, mined):
    query, *vectors = FeatureExtractor.of_texts(str(folder / "start")).sentences(
        ["man", *(row["text"] for row in CORPUS)]
    )
    cosines = {
        row["text"]: query @ v / np.linalg.norm(query) / np.linalg.norm(v)
        for row, v in zip(CORPUS, vectors, strict=True)
    }
    least = min(cosines["the man said"], cosines["was"])
    others = cosines.keys() - {"man", "was", "the man said"}
    ranked = sorted(others, key=lambda text: -cosines[text])[1:6]
    expected = [text for text in ranked if cosines[text] <= least][:3]
    flags = {"num_negatives": 3, "min_rank": 2, "max_rank": 6, "sampling": "top"}
    assert mined(MAN, CORPUS, **flags) == [expected, expected]
    assert mined(MAN, CORPUS, num_negatives=1, margin=3.0) == [[], []]


def test_mining_keeps_own_and_skips_positives(mined, tmp_path):
    own = [{"anchor": "man", "positive": "was", "negative_1": "by hand"}]
    ((by_hand, found),) = mined(own, CORPUS, num_negatives=1)
    assert by_hand == "by hand" and {"text": found} in CORPUS
    titled = [{"_id": "a", "title": "said", "text": "was"}, {"_id": "b", "title": "", "text": "said"},
              {"_id": "c", "title": "the", "text": "man"}, {"_id": "d", "text": "the"}]  # fmt: skip
    assert set(mined(own, titled, num_negatives=9)[0]) <= {"by hand", "the", "said"}, "no positive, no anchor"
    refused("holds pairs; give one text per row in the column text", mined, own, own, num_negatives=1)
    refused("corpus.jsonl", mined, own, CORPUS, num_negatives=1, output_file=tmp_path / "corpus.jsonl")
