"""Whole runs of `run_ner`: cased text, CoNLL files, features on disk, kills and resuming."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from seqeval import metrics as seqeval

from bert_tf.encoder import BertEncoder
from bert_tf.finetuning import activations, batches
from bert_tf.tasks.tagging import conll_files
from bert_tf.tasks.tagging.conll_files import Sentence, WordColumns
from tests.bert_tf import tagging
from tests.bert_tf.finetuning.killed_run import Killed, assert_same_weights, weights
from tests.conftest import WORDS
from tests.kit import refused, run, write
from tests.small_configs import small_config


def cased_sentences(count, seed):
    """Sentences in which a capital marks a name: "will" is not a name, "Will" is; two names in a row are one name."""
    rng = np.random.default_rng(seed)
    found, line = [], 1
    for number in range(count):
        words = rng.choice(WORDS[:40], rng.integers(3, 9)).tolist()
        named = rng.random(len(words)) < 0.3
        words = [word.capitalize() if name else word for word, name in zip(words, named, strict=True)]
        tags = [("I-PER" if i and named[i - 1] else "B-PER") if named[i] else "O" for i in range(len(words))]
        found.append(Sentence(tuple(words), tuple(tags), line, starts_document=number % 5 == 0))
        line += len(words) + 1
    return found


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Files with the names of CoNLL-2003's files, a cased vocabulary learned from them, and a configuration."""
    folder = tmp_path_factory.mktemp("ner")
    for seed, (split, count) in enumerate({"train": 120, "valid": 20, "test": 12}.items()):
        tagging.write(folder / f"{split}.txt", cased_sentences(count, seed), "{word} NN {tag}")
    corpus = "\n".join(" ".join(s.words) for s in cased_sentences(120, 0))
    (folder / "corpus.txt").write_text(corpus + "\n")
    files = {"input_file": folder / "corpus.txt", "output_file": folder / "vocab.txt"}
    run("data_gen.learn_vocab", **files, vocab_size=150, do_lower_case=False)
    for name, layers in (("config", 1), ("deep", 4)):
        config = small_config(150, 16, layers, dropout=0.0, initializer_range=0.1)
        (folder / f"{name}.json").write_text(config.to_json_string())
    return folder


def run_ner(inputs, output_dir, *more):
    """Trains a small cased tagger by default."""
    return run(
        "run_ner", f"--data_dir={inputs}", f"--bert_config_file={inputs}/config.json",
        f"--vocab_file={inputs}/vocab.txt", f"--output_dir={output_dir}", "--max_seq_length=24",
        "--train_batch_size=10", "--num_train_epochs=10", "--learning_rate=1e-2", *more,
    )  # fmt: skip


ALL = ["--do_train", "--do_eval", "--do_predict"]


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, run_ner(inputs, folder, *ALL)


def columns(path):
    """Returns the true and the predicted tags in a prediction file."""
    return [[row["tags"] for _, row in conll_files.rows(str(path), WordColumns(0, column))] for column in (1, 2)]


def test_case_is_kept_and_learned(trained):
    folder, scores = trained
    assert list(scores) == ["f1", "precision", "recall", "accuracy", "loss"]
    assert scores["f1"] > 0.5, "a model that does not see the capitals reaches at most 0.46: 30% of the words are names"
    task = json.loads((folder / "task.json").read_text())
    assert (task["kind"], task["labels"]) == ("tagging", ["O", "B-PER", "I-PER"])
    assert json.loads((folder / "tokenizer_config.json").read_text())["do_lower_case"] is False
    assert any(token[0].isupper() for token in (folder / "vocab.txt").read_text().split())


def test_predictions_have_every_line(inputs, trained):
    folder, scores = trained
    for name, split in (("dev", "valid"), ("test", "test")):
        words = [line.split()[0] if line else "" for line in (inputs / f"{split}.txt").read_text().splitlines()]
        lines = (folder / f"{name}_predictions.txt").read_text().splitlines()
        assert [line.split()[0] if line else "" for line in lines] == words
        true, predicted = columns(folder / f"{name}_predictions.txt")
        f1 = seqeval.f1_score(true, predicted)
        table = (folder / f"{name}_scores.txt").read_text()
        assert f"FB1: {100 * f1:6.2f}\n" in table and "PER: precision:" in table
        if name == "dev":
            assert scores["f1"] == pytest.approx(f1)
            assert scores["accuracy"] == pytest.approx(seqeval.accuracy_score(true, predicted))


@pytest.mark.slow
def test_words_without_tags_are_predicted_alike(inputs, trained, tmp_path, caplog):
    words = [row["words"] for _, row in conll_files.rows(str(inputs / "test.txt"), WordColumns())]
    (tmp_path / "words.txt").write_text("\n\n".join("\n".join(sentence) for sentence in words))
    out = shutil.copytree(trained[0], tmp_path / "run")
    expected = (out / "test_predictions.txt").read_text().replace("-DOCSTART- O O\n\n", "").splitlines()
    caplog.clear()
    run_ner(inputs, out, "--do_predict")
    assert caplog.text.count("PER: precision:") == 1
    (out / "test_scores.txt").unlink()
    run_ner(inputs, out, "--do_predict", f"--test_data_path={tmp_path}/words.txt")
    lines = (out / "test_predictions.txt").read_text().splitlines()
    assert lines == [" ".join(line.split()[::2]) for line in expected]
    assert not (out / "test_scores.txt").exists()


@pytest.mark.slow
def test_an_export_tags_as_the_prediction_file(inputs, trained, tmp_path):
    run("export.export_saved_model", checkpoint_dir=trained[0], export_dir=tmp_path / "1")
    words = [row["words"] for _, row in conll_files.rows(str(inputs / "test.txt"), WordColumns())]
    serve = tf.saved_model.load(str(tmp_path / "1")).signatures["words"]
    found = serve(words=tf.constant([" ".join(sentence) for sentence in words]))
    tags = [
        row[:count].astype(str).tolist() for row, count in zip(found["tags"].numpy(), found["num_words"], strict=True)
    ]
    assert tags == columns(trained[0] / "test_predictions.txt")[1]
    texts = [", ".join(sentence) + "." for sentence in words]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = shutil.copytree(trained[0], tmp_path / "run")
    run_ner(inputs, out, "--do_predict", f"--test_data_path={tmp_path}/texts.jsonl")
    found = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"](text=tf.constant(texts))
    pairs = zip(*(found[name].numpy().ravel() for name in ("words", "tags")), strict=True)
    served = [f"{word.decode()} {tag.decode()}" for word, tag in pairs if word]
    assert served == [line for line in (out / "test_predictions.txt").read_text().splitlines() if line]
    dev = [" ".join(row["words"]) for _, row in conll_files.rows(str(inputs / "valid.txt"), WordColumns())]
    requests = (tmp_path / "1/assets.extra/tf_serving_warmup_requests").read_bytes()
    assert not any(text.encode() in requests for text in dev if len(text) > 3), "only fixed texts"


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        ("Will NN B-LOC\n", ["--train_data_path={}", "--entity_types=PER"],
         r"a.txt, line 1: the tag 'B-LOC' has an unknown type; known types: PER"),
        ("a NN O\n", ["--train_data_path={}"], r"a.txt: every tag is O, so there is nothing to learn"),
        ("a NN B-PER\nb NN I-PER\n\nb NN O\nc NN I-PER\n", ["--train_data_path={}"],
         r"a.txt, line 5: the tag I-PER should be B-PER"),
        ("a NN O\nb NN B-ORG\n", ["--do_eval", "--eval_data_path={}"],
         r"a.txt, line 2: the tag 'B-ORG' has an unknown type; known types: PER"),
        ("", ["--feature_layers=concat_last_four"],
         r"--feature_layers: concat_last_four reads 4 hidden layers from the top, but the encoder has 1"),
        ("", ["--feature_layers=last_hidden", "--frozen_layers=1"], "does not train the encoder; drop"),
        ("", ["--feature_layers=last_hidden", "--bilstm_head"], "already has a BiLSTM, and --bilstm_head"),
        ("", ["--data_dir="], "--do_train needs --train_data_path or --data_dir"),
    ],
)  # fmt: skip
def test_bad_data_and_flags_are_refused_first(inputs, tmp_path, content, flags, message):
    path = write(tmp_path / "a.txt", content)
    refused(message, run_ner, inputs, tmp_path / "out", "--do_train", *(flag.format(path) for flag in flags))
    assert not (tmp_path / "out").exists()


FEATURES = ["--feature_layers=concat_last_four", "--lstm_size=32", "--document_context", "--learning_rate=5e-3",
            "--noadam_bias_correction"]  # fmt: skip


def run_features(inputs, output_dir, *more):
    return run_ner(inputs, output_dir, f"--bert_config_file={inputs}/deep.json", *FEATURES, *more)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(batches, "_TOKENS_PER_BATCH", 150)


def refuse(*args, **kwargs):
    raise AssertionError("the encoder runs")


@pytest.mark.slow
def test_features_are_computed_only_once(inputs, tmp_path, small_batches, monkeypatch):
    shared = f"--activations_dir={tmp_path}/shared"
    scores = run_features(inputs, tmp_path / "a", *ALL, shared)
    assert scores["f1"] > 0.25, "it learns from an encoder of random weights"
    assert len(list((tmp_path / "shared").iterdir())) == 3
    trained, start = weights(tmp_path / "a/ckpt-120"), weights(tmp_path / "a/ckpt-0")
    for name, value in start.items():
        if name.startswith("model/encoder"):
            np.testing.assert_array_equal(trained[name], value, err_msg=name)
    assert any(name.startswith("optimizer") for name in trained)
    assert not any("encoder" in name and "OPTIMIZER" in name for name in trained)
    monkeypatch.setattr(BertEncoder, "call", refuse)
    # --feature_layers is taken from the run's folder
    again = run_ner(inputs, tmp_path / "a", "--bert_config_file=", "--do_eval", shared)
    assert again == pytest.approx(scores, rel=1e-5)
    other = run_features(inputs, tmp_path / "b", "--learning_rate=3e-3", *ALL, shared)
    assert other["loss"] > 0


@pytest.mark.slow
def test_a_kill_during_the_features_changes_nothing(inputs, tmp_path, small_batches, monkeypatch):
    flags = ["--num_train_epochs=4", "--save_checkpoints_steps=14", "--do_train", "--do_eval"]
    run_features(inputs, tmp_path / "whole", *flags)

    def killed(shown, rows):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(activations.ProgressBar, "update", killed)  # after the first batch
        with pytest.raises(Killed):
            run_features(inputs, tmp_path / "killed", *flags)
    assert not list((tmp_path / "killed/activations").iterdir())
    run_features(inputs, tmp_path / "killed", *flags)
    for path in [*(tmp_path / "killed").glob("ckpt-48.*"), tmp_path / "killed/checkpoint"]:
        path.unlink()
    monkeypatch.setattr(BertEncoder, "call", refuse)
    run_features(inputs, tmp_path / "killed", *flags)
    assert_same_weights(tmp_path / "killed/ckpt-48", tmp_path / "whole/ckpt-48")


@pytest.mark.slow
def test_replicas_learn_what_one_device_learns(inputs, tmp_path):
    flags = ["--num_train_epochs=1", "--do_train", "--do_eval", "--eval_batch_size=10"]
    one = run_features(inputs, tmp_path / "one", *flags)
    two = run_features(inputs, tmp_path / "two", *flags, "--distribution_strategy=mirrored", "--num_gpus=0")
    assert two == pytest.approx(one, rel=1e-3)
