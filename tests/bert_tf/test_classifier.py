"""`TextClassifier`: what a person calls from Python."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.classifier import TextClassifier
from bert_tf.config import BertConfig
from bert_tf.finetuning.tasks.memory_task import MemoryTask, class_names, examples_of
from bert_tf.pretraining.objective import BertPretrainer
from tfrecords.errors import InputError

PAIRS = [("the man", "who said so"), ("all of you", 'a "tab\t" and\nline')] * 10
LABELS = [7, 10] * 10


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, vocab_file):
    folder = tmp_path_factory.mktemp("pretrained")
    config = BertConfig(300, 16, 1, 2, 32, max_position_embeddings=32, initializer_range=0.2)
    (folder / "bert_config.json").write_text(config.to_json_string())
    (folder / "vocab.txt").write_text(pathlib.Path(vocab_file).read_text())
    tf.train.Checkpoint(model=BertPretrainer(config)).write(f"{folder}/ckpt")
    return folder


OPTIONS = {
    "max_seq_length": 16, "train_batch_size": 6, "num_train_epochs": 8.0, "learning_rate": 5e-3, "pooling": "mean",
    "long_text": "window", "dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(checkpoint, tmp_path_factory):
    output = tmp_path_factory.mktemp("classifier")
    return TextClassifier.train(PAIRS, LABELS, checkpoint, output, **OPTIONS), output


@pytest.mark.slow
def test_pairs_are_learned_and_predicted_in_any_batch_also_after_loading(trained):
    model, output = trained
    assert model.labels == ("7", "10") and model.scores["accuracy"] == 1.0
    texts = [*PAIRS[:3], ("very " * 40, "long " * 40)]
    assert model.predict(texts[:3]) == ["7", "10", "7"]
    expected = model.probabilities(texts)
    assert expected.shape == (4, 2)
    np.testing.assert_allclose(expected.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(TextClassifier.load(output).probabilities(texts, batch_size=1), expected, atol=1e-5)
    page = (output / "report.html").read_text()
    assert "Confusion matrix" in page and "python -m" not in page, "no command has these texts"
    assert len((output / "dev_predictions.jsonl").read_text().splitlines()) == 2, "a tenth of 20 texts"


@pytest.mark.slow
def test_the_same_call_finds_its_training_done_and_other_texts_are_refused(trained, checkpoint):
    _, output = trained
    assert TextClassifier.train(PAIRS, LABELS, checkpoint, output, **OPTIONS).scores["accuracy"] == 1.0
    with pytest.raises(InputError, match="holds a run of another data"):
        TextClassifier.train(PAIRS[::-1], LABELS, checkpoint, output, **OPTIONS)


@pytest.mark.slow
def test_predicting_single_texts_with_a_model_of_pairs_is_refused(trained):
    with pytest.raises(InputError, match="was trained on pairs"):
        trained[0].predict(["the man"])


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("a text", ["a"], "texts: is one string; give a list of texts"),
        ([], [], "texts: is empty"),
        (["a", 3], ["x", "y"], r"texts\[1\]: is 3; give a string, or a pair of strings"),
        (["a", ("b", "c")], ["x", "y"], r"texts\[1\]: single texts and pairs are mixed"),
        (["a", "b"], ["x"], "2 texts, but 1 labels"),
        (["a", "b"], ["x", "x "], "all labels are 'x'; a classifier needs at least two classes"),
        (["a", "b"], ["x", None], r"the label of texts\[1\] is None"),
        (["a", "b"], [1.0, float("nan")], r"the label of texts\[1\] is nan"),
        (["a", "b"], ["x", 1], "the labels mix integers and strings"),
        (["a", "\ud800"], ["x", "y"], r"texts\[1\]: has a lone surrogate"),
        (["a", "b"], ["x", "y"], "dev_share=0.9: leaves none of 2 texts"),
    ],
)
def test_bad_input_is_refused_before_any_work(texts, labels, message, tmp_path):
    with pytest.raises(InputError, match=message):
        TextClassifier.train(texts, labels, "nowhere", tmp_path / "out", dev_share=0.9)
    assert not (tmp_path / "out").exists()


def test_unknown_settings_and_dev_labels_are_refused(tmp_path):
    def train(**more):
        TextClassifier.train(["a", "b"], ["x", "y"], "nowhere", tmp_path, **more)

    with pytest.raises(InputError, match="epochs: no such setting"):
        train(epochs=3)
    with pytest.raises(InputError, match="dev_texts and dev_labels: give both or none"):
        train(dev_texts=["a"])
    with pytest.raises(InputError, match="dev_labels: 'z' is not among the labels"):
        train(dev_texts=["a"], dev_labels=["z"])


def test_floats_are_a_regression_and_other_labels_classes():
    assert class_names([0.5, np.float32(2)]) == () and class_names([2, np.int64(10)]) == ("2", "10")
    task = MemoryTask({"dev": examples_of(["a", "b"], [-1.5, 3e9])}, False, ())
    assert [task.label_value(example.label) for example in task.read("dev")] == [-1.5, 3e9]
    other = MemoryTask({"dev": examples_of(["a", "b"], [-1.5, 3e8])}, False, ())
    assert task.fingerprint("dev") != other.fingerprint("dev")
