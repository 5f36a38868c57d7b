import contextlib
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.bert_tf.tasks_of_flags import find_task
from tests.kit import refused


@pytest.fixture(autouse=True)
def data_dir(tmp_path, monkeypatch):
    """The folder that TFDS_DATA_DIR names."""
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(tmp_path))


def settings(name, **changes):
    required = {"output_dir": "o", "do_train": True}
    return ClassifierSettings(tfds_name=name, **{**required, **changes})


@contextlib.contextmanager
def holding(folder, rows):
    """Fakes data sets whose splits have these rows, which are dicts; no file is read, and nothing is downloaded."""

    def as_dataset(self, split, **options):
        del options
        specs = self.info.features.get_tensor_spec()
        return tf.data.Dataset.from_generator(lambda: rows, output_signature={n: specs[n] for n in rows[0]})

    with tfds.testing.mock_data(as_dataset_fn=as_dataset, data_dir=str(folder)):
        yield


MRPC = [
    {"sentence1": b"a", "sentence2": b"b", "label": 1},
    {"sentence1": b"c", "sentence2": "ü".encode(), "label": 0},
    {"sentence1": b"e", "sentence2": b"f", "label": -1},
]


def test_a_pair_task_of_glue_by_its_name(tmp_path, caplog):
    with holding(tmp_path, MRPC):
        task = find_task(settings("glue/mrpc"))
        train, test = task.data.read("train"), task.data.read("test")
    assert (task.kind, task.labels, task.has_pairs) == ("classification", ("not_equivalent", "equivalent"), True)
    assert task.answers.score_names == ("accuracy", "f1"), "GLUE's own"
    assert [dataclasses.astuple(e)[:3] for e in train] == [("a", "b", "equivalent"), ("c", "ü", "not_equivalent")]
    assert "left out 1 examples without a label" in caplog.text
    assert [example.label for example in test] == [None] * 3, "no metrics without all labels"
    assert not task.is_labeled(test) and task.data.title("test") == "glue/mrpc test"
    assert task.data.source.class_names() == task.labels and task.data_facts()["tfds_name"] == "glue/mrpc/2.0.0"


def test_the_librarys_own_examples_are_read(tmp_path):
    with tfds.testing.mock_data(num_examples=5, data_dir=str(tmp_path)):
        task = find_task(settings("imdb_reviews", tfds_splits="train,test"))
        assert (task.labels, task.has_pairs) == (("neg", "pos"), False)
        assert task.answers.score_names == ("accuracy", "macro_f1")
        assert len(task.data.read("dev")) == 5 and task.data.title("dev") == "imdb_reviews test"
        stsb = find_task(settings("glue/stsb"))
        assert (stsb.kind, stsb.answers.mean, stsb.answers.deviation) == ("regression", 0, 1), "as the original"
        assert all(np.isfinite(float(example.label)) for example in stsb.data.read("train"))


def test_features_are_named_by_flags(tmp_path):
    with holding(tmp_path, MRPC[:2]):
        task = find_task(settings("glue/mrpc", text_a_column="sentence2", labels="equivalent,not_equivalent"))
        assert task.labels[0] == "equivalent" and not task.has_pairs and task.data.read("train")[0].text_a == "b"
        assert task.answers.score_names == ("accuracy", "macro_f1"), "class 1 would be another class"
        for changes, message in (
            ({"text_a_column": "body"}, "'body' is not one of its texts, sentence1, sentence2"),
            ({"label_column": "kind"}, "no feature 'kind'; give --label_column, one of sentence1, sentence2, label"),
        ):
            refused(message, find_task, settings("glue/mrpc", **changes))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_set", "--tfds_name=no_such_set: TensorFlow Datasets cannot find it"),
        ("glue/nope", "--tfds_name=glue/nope: TensorFlow Datasets cannot find it"),
        ("imdb_reviews", "is not in .*; download it once with `tfds build imdb_reviews`, or name another"),
    ],
)
def test_a_missing_set_ends_in_one_line(tmp_path, name, message, monkeypatch):
    monkeypatch.setattr("tensorflow_datasets.core.utils.gcs_utils.exists", lambda path: False)
    found = refused(message, lambda: find_task(settings(name)).data.read("train"))
    assert len(found.replace(str(tmp_path), "FOLDER")) < 250


def prepared(folder, name, texts, splits=("train", "validation")):
    """Writes the files of a data set without its code; each text is the name of its feature and a number."""
    features = {**dict.fromkeys(texts, tfds.features.Text()), "label": tfds.features.ClassLabel(names=["no", "yes"])}
    rows = [(i, {**{text: f"{text} {i}" for text in texts}, "label": i % 2}) for i in range(20)]
    tfds.dataset_builders.store_as_tfds_dataset(
        name, "1.0.0", data_dir=str(folder), features=tfds.features.FeaturesDict(features),
        split_datasets=dict.fromkeys(splits, rows),
    )  # fmt: skip


def test_an_unknown_order_of_two_texts_is_asked_for(tmp_path):
    prepared(tmp_path, "stored", ("zeta", "alpha"))
    refused("has 2 texts .alpha, zeta. in unknown order; give --text_a_column", find_task, settings("stored"))
    task = find_task(settings("stored", text_a_column="zeta", text_b_column="alpha"))
    assert task.data.facts["text_a_column"] == "zeta"


def test_a_share_is_held_out_of_a_set_without_dev_data(tmp_path, caplog):
    prepared(tmp_path, "stored", ("text",), ("train", "test"))
    task = find_task(settings("stored", dev_share=0.2))
    assert [len(task.data.read(split)) for split in ("train", "dev", "test")] == [16, 4, 20]
    assert "validation" not in caplog.text
    assert len(find_task(settings("stored")).data.read("dev")) == 20
    assert "has no validation split, so its test split is the dev data; give --dev_share" in caplog.text
