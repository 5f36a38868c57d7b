"""Every kind of task reads its rows from every format that pandas writes, and from tables in memory."""

import json

import pandas
import pytest

from bert_tf import embedder
from bert_tf.tasks.classification.memory_source import memory_source
from bert_tf.tasks.embeddings import data as vectors
from tests.bert_tf.tasks.reading import DATA
from tests.kit import refused

TEXTS = ["a, b", 'she; "no"', "d\te", "[x]", "ü 1,5"]
SPANS = [[{"start": 0, "end": 1, "label": "X"}], [], [{"start": 0, "end": 1, "label": "Y"}], [], []]
ANSWERS = [{"text": [text[0]], "answer_start": [0]} for text in TEXTS]
# The columns of a kind's rows, the texts and the right answers of their examples, and options of the reader.
KINDS = {
    "classes": ("classification", {"text": TEXTS, "label": list("xyxyx")}, list("xyxyx"), {}),
    "no texts": ("classification", {"text": [None, *TEXTS[1:]], "label": list("xyxyx")}, list("xyxyx"), {}),
    "numbers": ("classification", {"text": TEXTS, "label": [2, 10, 0, 10, 2]}, ["2", "10", "0", "10", "2"], {}),
    "booleans": ("classification", {"text": TEXTS, "label": [True] * 4 + [False]}, ["True"] * 4 + ["False"], {}),
    "scores": ("classification", {"text": TEXTS, "label": [0.5, 2, -1e-7, 3.25, 1e9]}, [0.5, 2, -1e-7, 3.25, 1e9],
               {"kind": "regression"}),
    "sets": ("classification", {"text": TEXTS, "label": [["x", "y"], [], ["y"], ["x"], ["y"]]},
             [("x", "y"), (), ("y",), ("x",), ("y",)], {"kind": "multi_label"}),
    "choice": ("choice", {"context": TEXTS, "choices": [["a", "b, c"]] * 5, "label": [0, 1, 1, 0, 0]}, [0, 1, 1, 0, 0],
               {}),
    "tags": ("tagging", {"tokens": [["Ada", "met"]] * 5, "ner_tags": [["B-X", "O"]] * 5}, [("B-X", "O")] * 5, {}),
    "spans": ("tagging", {"text": TEXTS, "entities": SPANS}, None, {}),
    "pairs": ("embeddings", {"anchor": TEXTS, "positive": TEXTS[::-1]}, [None] * 5, {}),
    "scored pairs": ("embeddings", {"sentence1": TEXTS, "sentence2": TEXTS, "score": [0.5, 1, 0, 0, 1]},
                     [0.5, 1, 0, 0, 1], {}),
    "questions": ("questions", {"id": list("abcde"), "context": TEXTS, "question": ["who?"] * 5, "answers": ANSWERS},
                  [(text[0], 0) for text in TEXTS], {}),
}  # fmt: skip
FORMATS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "index.csv": lambda frame, path: frame.to_csv(path),
    "semicolons.csv": lambda frame, path: frame.to_csv(path, index=False, sep=";", decimal=",", encoding="utf-8-sig"),
    "excel.csv": lambda frame, path: path.write_text("sep=;\n" + frame.to_csv(index=False, sep=";")),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "json": lambda frame, path: frame.to_json(path, orient="records", indent=2),
    "split.json": lambda frame, path: frame.to_json(path, orient="split"),
    "table.json": lambda frame, path: frame.to_json(path, orient="table", index=False),
    "columns.json": lambda frame, path: frame.to_json(path, indent=1),
    "parquet": lambda frame, path: frame.to_parquet(path),
}
# Cells that a format cannot hold, or that only its quotes can hold; the message names the file and the place.
REFUSED = {
    **{("questions", end): "write it as JSON or Parquet" for end in FORMATS if end.endswith("sv")},
    **{(name, "tsv"): "the first line has" for name in ("choice", "pairs", "scored pairs")},
    **{(name, "tsv"): "is not a tag" for name in ("tags", "spans")},
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_reads_each_format(tmp_path, name, format):
    kind, columns, labels, options = KINDS[name]
    path = tmp_path / f"train.{format}"
    FORMATS[format](pandas.DataFrame(columns), path)
    quoted = {"quoted": True} if kind == "classification" else {}
    data = DATA[kind]("", {"train": (str(path),)}, **options, **quoted)
    if message := REFUSED.get((name, format)):
        refused(f"{path.name}.*({message})", data.read, "train")
        return
    plain = tmp_path / "plain.jsonl"
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    plain.write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = DATA[kind]("", {"train": (str(plain),)}, **options)
    assert repr(data.read("train")) == repr(expected.read("train")) and content(data) == content(expected)
    assert labels in (None, [example.label for example in data.read("train")])


def content(data):
    return data.fingerprint("train")[0].rsplit(", ", 2)[1:]


IN_MEMORY = [name for name, kind in KINDS.items() if kind[0] in ("classification", "embeddings") and name != "no texts"]
TABLES = {
    "lists": lambda columns: list(zip(*columns.values(), strict=True)),
    "records": lambda columns: pandas.DataFrame(columns).to_dict("records"),
    "columns": dict,
    "pandas": pandas.DataFrame,
    "nullable": lambda columns: pandas.DataFrame(columns).convert_dtypes(),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", IN_MEMORY)
def test_tables_in_memory_are_read_as_files_are(tmp_path, name, table):
    check_table(tmp_path, name, TABLES[table])


def check_table(tmp_path, name, make):
    """Compares the data of a table in memory with the data of the same table in a file."""
    kind, columns, _, options = KINDS[name]
    path, table = tmp_path / "train.parquet", make(columns)
    pandas.DataFrame(columns).to_parquet(path)
    if kind == "classification":
        is_list = isinstance(table, list) and isinstance(table[0], tuple)
        given = list(zip(*table, strict=True)) if is_list else (table, "label")
        data = memory_source(*given, None, options.get("kind", "") if name != "sets" else "").data
    else:
        data = vectors.in_memory({"train": embedder._rows(table, "examples")}, DATA[kind]("", {}))
    file = DATA[kind]("", {"train": (str(path),)}, **options)
    assert data.read("train") == file.read("train") and content(data) == content(file)


def test_missing_cells_of_a_table_in_memory():
    frame = pandas.DataFrame({"text": ["a", None, "c"], "label": ["x", "y", "x"]}).convert_dtypes()
    assert [example.text_a for example in memory_source(frame, "label", None).data.read("train")] == ["a", "", "c"]
    frame["label"] = frame["label"].mask([False, False, True])
    refused(r"the labels mix other values and strings, such as labels\[2\]", memory_source, frame, "label", None)
