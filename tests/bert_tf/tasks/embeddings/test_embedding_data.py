"""The files of `run_embeddings`."""

import json

import pandas
import pytest

from bert_tf.rows.memory import rows_of
from bert_tf.tasks.embeddings import data
from bert_tf.tasks.embeddings.data import COLLECTION, PAIRS, SCORED, TEXTS
from tests import kit
from tests.bert_tf.tasks import reading
from tests.kit import refused


def read(path, split="train"):
    return reading.read("embeddings", path, split)


def write(path, *lines):
    return str(kit.write(path, "".join(f"{line}\n" for line in lines)))


def rows(*entries):
    return [json.dumps(entry) for entry in entries]


def collection(folder, qrels=("q1\td2\t2", "q2\td1\t1", "q1\td1\t0")):
    write(folder / "corpus.jsonl", *rows({"_id": "d1", "title": "The", "text": "man"}, {"_id": "d2", "text": "had"}))
    write(
        folder / "queries.jsonl",
        *rows({"_id": "q1", "text": "was"}, {"_id": "q2", "text": "is"}, {"_id": "q3", "text": "so"}),
    )
    write(folder / "qrels/dev.tsv", "query-id\tcorpus-id\tscore", *qrels)
    return str(folder)


TRIPLE = ["anchor\tpositive\tnegative_1", "the\tman\twas"]
MANY = rows({"anchor": "a", "positive": "b", "negatives": ["c", "d"]},
            {"anchor": "e", "positive": "f", "negatives": []})  # fmt: skip
FLAG_EMBEDDING = rows({"query": "a", "pos": ["b", "c"], "neg": ["d", "e"], "pos_scores": [1]})
MINED = ["anchor,positive,negative,negative_id,negative_score", "a,b,c,d17,0.3"]


@pytest.mark.parametrize(
    ("name", "lines", "split", "form", "texts", "label"),
    [
        ("a.tsv", TRIPLE, "train", PAIRS, [("the", "man", "was")], None),
        ("a.csv", ["question,answer", '"the, so",man'], "train", PAIRS, [("the, so", "man")], None),
        ("a.jsonl", rows({"query": "a", "document": "b"}), "train", PAIRS, [("a", "b")], None),
        ("a.jsonl", rows({"query": "a", "positive": "b", "negative": "c"}), "train", PAIRS, [("a", "b", "c")], None),
        ("a.jsonl", rows({"query": "a", "answer": "b"}), "train", PAIRS, [("a", "b")], None),
        ("a.jsonl", MANY, "train", PAIRS, [("a", "b", "c", "d"), ("e", "f")], None),
        ("a.jsonl", FLAG_EMBEDDING, "train", PAIRS, [("a", "b", "d", "e"), ("a", "c", "d", "e")], None),
        ("a.csv", MINED, "train", PAIRS, [("a", "b", "c")], None),
        ("a.csv", ["question, answer, label", 'why, "so, it is", 0'], "train", SCORED, [("why", "so, it is")], 0.0),
        ("a.tsv", ["index\tsentence1\tsentence2\tscore", '0\t"the\tman\t3.5'], "train", SCORED, [('"the', "man")],
         3.5),
        ("a.tsv", ["sentence1\tsentence2", "the\tman"], "test", SCORED, [("the", "man")], None),
        # Only in training, a single text is its own positive; for a teacher's answer, one row is enough.
        ("a.jsonl", rows({"text": "the man"}), "train", TEXTS, [("the man", "the man")], None),
        ("a.jsonl", rows({"text": "the man"}), "test", TEXTS, [("the man",)], None),
    ],
)  # fmt: skip
def test_the_columns_name_the_form(tmp_path, name, lines, split, form, texts, label):
    found = read(write(tmp_path / name, *lines), split)
    assert [example.texts for example in found] == texts
    assert {(example.form, example.label) for example in found} == {(form, label)}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"query": "ab", "passage": "cd", "label": [1, 1]}, "each label is 1, so there is nothing to learn; drop this"),
        (
            {"sentence1": "abc", "sentence2": "def", "label": [0, 1, 2]},
            "label has the values 0, 1 and 2, which are pro",
        ),
        ({"text": "ab", "label": [0, 1]}, "has the columns text and label; give run_classifier texts with classes"),
    ],
)
def test_classes_are_not_taken_for_scores(columns, message, tmp_path):
    table = pandas.DataFrame({name: list(cells) for name, cells in columns.items()})
    refused(message, read, kit.write(tmp_path / "a.jsonl", table))


def test_the_lists_in_tables_of_pandas_are_read(tmp_path):
    path = kit.write(tmp_path / "a.parquet", list(map(json.loads, MANY)))
    table = pandas.read_parquet(path)  # the cells are arrays
    found = data.of_rows([("row", row) for row in rows_of(table)], "table", "train")
    assert [example.texts for example in found] == [("a", "b", "c", "d"), ("e", "f")]
    assert found == read(path)


def test_rows_may_have_different_numbers_of_negatives(tmp_path):
    path = write(
        tmp_path / "a.jsonl", *rows({"anchor": "a", "positive": "b"}, {"anchor": "c", "positive": "d", "negative": "e"})
    )
    expected = [("a", "b"), ("c", "d", "e")]
    assert [example.texts for example in read(path, "train")] == expected
    path = write(tmp_path / "a.csv", "anchor,positive,negative", "a,b,", "c,d,e")
    assert [example.texts for example in read(path, "train")] == expected
    table = [("row", row) for row in pandas.read_csv(path).to_dict("records")]  # a missing text is NaN
    assert [example.texts for example in data.of_rows(table, "table", "train")] == expected


def test_collection_has_judged_queries_and_documents(tmp_path):
    found = read(collection(tmp_path), "dev")
    assert {example.form for example in found} == {COLLECTION}
    assert [(one.texts[0], one.relevant) for one in found[:2]] == [("was", {"d2": 2.0}), ("is", {"d1": 1.0})]
    assert [(one.id, one.texts[0], one.relevant) for one in found[2:]] == [("d1", "The man", None), ("d2", "had", None)]


def test_judgments_without_header_or_texts(tmp_path, caplog):
    folder = collection(tmp_path, ["q1\td2\t2", "q1\tgone\t1", "lost\td1\t1", "q2\td1\t0"])
    qrels = tmp_path / "qrels/dev.tsv"
    found = [(one.id, one.relevant) for one in read(folder, "dev") if one.relevant is not None]
    assert found == [("query q1", {"d2": 2.0, "gone": 1.0}), ("query q2", {})]
    assert "1 queries are not in queries.jsonl and are left out; 1 documents are not in corpus.jsonl" in caplog.text
    lines = qrels.read_text().splitlines()[1:]
    for form in ("{0}\t{1}\t{2}", "{0}\t0\t{1}\t{2}"):  # of BEIR without a header, and of trec_eval
        write(qrels, *(form.format(*line.split("\t")) for line in lines))
        assert [(one.id, one.relevant) for one in read(folder, "dev") if one.relevant is not None] == found
    write(tmp_path / "corpus.jsonl", *rows({"_id": "d1", "title": None, "text": "man"}, {"_id": "d2", "text": "had"}))
    assert read(folder, "dev")[2].texts == ("man",)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["anchor\tother", "a\tb"], "a.tsv: has the columns anchor, other; give anchor.*positive"),
        (["sentence1\tsentence2", "a\tb"], "give anchor.*positive.*, or sentence1, sentence2 and score"),
        (["anchor\tpositive\tnegative\tscore", "a\tb\tc\t1"], "has the column score beside anchor and positive; drop"),
        (["question\tanswer\tscore", "a\tb\t13"], "has the column score beside question and answer; drop this column"),
        (["sentence1\tsentence2\tnegative\tscore", "a\tb\tc\t1"], "has the columns .*score; give"),
        (["anchor\tpositive", "a\t "], "a.tsv, line 2: positive is empty; give a text in each row"),
        (["sentence1\tsentence2\tscore", "a\tb\tgood"], "a.tsv, line 2: the score 'good' is not a number"),
        (["anchor\tpositive", 'a\t"a ""b"" c"'], "a.tsv, line 2: a text is in double quotes .*; save the file as .csv"),
        (["sentence1\tsentence2\tscore", "a\tb\tinf"], "a.tsv, line 2: the score 'inf' is not a finite number"),
    ],
)
def test_a_bad_table_is_refused(tmp_path, lines, message):
    refused(message, read, write(tmp_path / "a.tsv", *lines))


DOUBLE = rows({"_id": "d1", "text": "a"}, {"_id": "d1", "text": "b"})


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("qrels/dev.tsv", ["query-id\tcorpus-id\tscore", "q1\td1\t0"], "names no relevant document"),
        ("qrels/dev.tsv", ["query-id\tcorpus-id\tscore", "q1\td1\tyes"], "line 2: the score 'yes' is not a number"),
        ("qrels/dev.tsv", ["query-id\tcorpus-id\tscore", "q1\td1\tnan"], "line 2: the score 'nan' is not a finite num"),
        ("corpus.jsonl", rows({"_id": "d1", "text": " "}), "corpus.jsonl, line 1: the text is empty"),
        ("corpus.jsonl", DOUBLE, "corpus.jsonl, line 2: _id must be a string that no other line has"),
    ],
)
def test_a_bad_collection_is_refused(tmp_path, name, lines, message):
    folder = collection(tmp_path)
    write(tmp_path / name, *lines)
    refused(message, read, folder, "dev")
