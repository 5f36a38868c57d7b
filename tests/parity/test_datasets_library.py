"""Tables of the libraries datasets and polars, as Python programs give them to the classes that train."""

import polars
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from bert_tf import TextClassifier, TextEmbedder
from bert_tf.core.errors import InputError
from bert_tf.tasks.classification import memory_source
from bert_tf.tasks.classification.settings import ClassifierSettings
from tests.bert_tf.pretrained_folder import write_pretrained
from tests.bert_tf.tasks import test_formats
from tests.bert_tf.tasks.embeddings import small_model
from tests.bert_tf.tasks.reading import read
from tests.bert_tf.tasks_of_flags import find_task
from tests.kit import refused

pytestmark = pytest.mark.torch
SETTINGS = {"max_seq_length": 16, "train_batch_size": 8, "num_train_epochs": 1}


@pytest.fixture(scope="module")
def start(tmp_path_factory, vocab_file):
    folder = tmp_path_factory.mktemp("start")
    write_pretrained(folder, vocab_file)
    return folder


def test_a_dataset_trains_vectors_as_a_list_does(start, tmp_path):
    pairs = [one.texts[:2] for one in small_model.examples(16)]
    table = Dataset.from_dict({"anchor": [one for one, _ in pairs], "positive": [other for _, other in pairs]})
    scores = TextEmbedder.train(pairs, start, tmp_path / "list", dev=pairs, **SETTINGS).scores
    assert TextEmbedder.train(table, start, tmp_path / "table", dev=table, **SETTINGS).scores == pytest.approx(scores)


def test_columns_of_a_dataset_train_a_classifier(start, tmp_path):
    texts = [one.texts[0] for one in small_model.examples(16)]
    table = Dataset.from_dict({"text": texts, "label": [number % 2 for number in range(16)]})
    arguments = table["text"], table["label"], start, tmp_path / "table"
    model = TextClassifier.train(*arguments, dev_texts=table["text"], dev_labels=table["label"], **SETTINGS)
    assert model.labels == ("0", "1") and len(model.predict(table["text"])) == 16
    dev = {"dev_texts": table, "dev_labels": "label"}
    other = TextClassifier.train(table, "label", start, tmp_path / "whole", **dev, **SETTINGS)
    assert other.scores == pytest.approx(model.scores) and other.predict(table) == model.predict(table["text"])
    named = table.cast_column("label", ClassLabel(names=["negative", "neutral"]))
    for columns in ((named, "label"), (named["text"], named["label"]), (named.to_iterable_dataset(), "label")):
        given = memory_source.memory_source(*columns, None)
        assert (
            given.data.source.class_names() == ("negative", "neutral")
            and given.data.read("train")[1].label == "neutral"
        )
    scores = memory_source.memory_source(named, "label", None, "regression")
    assert [example.label for example in scores.data.read("train")][:2] == [0.0, 1.0], "a class counts as its number"
    frame = polars.DataFrame({"text": table["text"][:], "label": table["label"][:]})
    assert other.predict(frame) == other.predict(frame["text"]) == model.predict(table["text"])
    with pytest.raises(InputError, match="a dict of the tables train, dev is not a table; give one of the tables"):
        memory_source.memory_source(DatasetDict({"train": table, "dev": table}), "label", None)
    assert other.evaluate(frame, "label") == other.evaluate(table, "label")


def test_questions_of_a_dataset_are_read(tmp_path):
    context, answers = "The man said it.", {"text": ["man", "The man"], "answer_start": [4, 0]}
    rows = {"id": ["a", "b"], "context": [context] * 2, "question": ["who?", "why?"],
            "answers": [answers, {"text": [], "answer_start": []}]}  # fmt: skip
    Dataset.from_dict(rows).to_json(tmp_path / "dev.jsonl")
    first, second = read("questions", f"{tmp_path}/dev.jsonl", "test")
    assert (first.id, first.context, first.text) == ("a", context, "who?")
    assert first.answers == (("man", 4), ("The man", 0)) and not first.is_impossible
    assert second.answers == () and second.is_impossible


@pytest.mark.parametrize("names", [["not_duplicate", "duplicate"], ["entailment", "not_entailment"]])
def test_names_of_classes_say_which_pairs_are_right(names, tmp_path):
    """A file of the library datasets."""
    columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [0, 1]}
    features = {"sentence1": Value("string"), "sentence2": Value("string"), "label": ClassLabel(names=names)}
    Dataset.from_dict(columns, Features(features)).to_parquet(str(tmp_path / "a.parquet"))
    if names[0] == "not_duplicate":
        assert [example.label for example in read("embeddings", tmp_path / "a.parquet")] == [0, 1]
        return
    with pytest.raises(InputError, match="label has the classes entailment, not_entailment, which are not scores"):
        read("embeddings", tmp_path / "a.parquet")


def test_a_parquet_file_orders_its_classes(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["low", "middle", "high"])})
    columns = {"text": ["a", "b", "c", "d"], "label": [2, 0, 0, 2]}
    Dataset.from_dict(columns, features).to_parquet(str(tmp_path / "train.parquet"))
    task = find_task(ClassifierSettings(task_name="own", data_dir=str(tmp_path), output_dir="o", do_train=True))
    assert task.labels == ("low", "middle", "high")
    assert [example.label for example in task.data.read("train")] == ["high", "low", "low", "high"]


def test_a_folder_of_save_to_disk_is_named(tmp_path):
    table = Dataset.from_dict({"text": ["a", "b"], "label": ["x", "y"]})
    table.save_to_disk(str(tmp_path / "one"))
    DatasetDict({"train": table}).save_to_disk(str(tmp_path / "all"))
    for where in ({"train_data_path": str(tmp_path / "one")}, {"data_dir": str(tmp_path / "all")}):
        task = find_task(ClassifierSettings(task_name="own", labels="x,y", output_dir="o", do_train=True, **where))
        refused("is a folder of save_to_disk; write its splits as Parquet with to_parq", task.data.read, "train")


def test_a_polars_series_of_lists_is_read():
    column = polars.Series([["x"], ["y", "x"]])
    assert memory_source.memory_source(["a", "b"], column, None).data.read("train")[1].label == ("y", "x")


@pytest.mark.parametrize("make", [Dataset.from_dict, polars.DataFrame])
@pytest.mark.parametrize("name", test_formats.IN_MEMORY)
def test_tables_of_other_libraries_equal_files(tmp_path, name, make):
    test_formats.check_table(tmp_path, name, make)
