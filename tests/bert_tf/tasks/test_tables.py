"""Tables of a user's own files."""

import pandas
import pytest

from bert_tf.core.errors import InputError
from bert_tf.tasks.questions.squad_file import Answer
from tests.bert_tf.tasks.reading import DATA, cells, read
from tests.kit import refused, write


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        ("csv", 'text\na\n""\n', ["a", ""]),
        ("csv", 'text\r\na\r\n""\r\n\r\n', ["a", ""]),
        ("tsv", "text\na\n\n", ["a", ""]),
        ("tsv", "text\tlabel\na\tx\n\n\n", ["a"]),
    ],
)
def test_ignores_blank_last_lines_but_not_empty_cells(tmp_path, format, text, expected):
    assert [text for (text,) in cells(write(tmp_path / "a", text), "text", format=format)] == expected


@pytest.mark.parametrize("end", ["tsv", "csv"])
def test_old_mac_line_ends_are_named(tmp_path, end):
    path = write(tmp_path / f"a.{end}", "text\rgood\rbad\r")
    refused("line 1: has CR inside the line; save the file with LF or CRLF", cells, path, "text")


def test_doubled_quotes_of_a_tsv_from_pandas_are_named(tmp_path):
    texts = ["plain", 'she said "no" twice', '"quoted" and ""', "end"]
    path = write(tmp_path / "a.tsv", pandas.DataFrame({"text": texts, "label": list("xyxy")}))
    refused("line 3: .* has doubled quotes inside; .* --quoted .*or --noquoted", cells, path, "text", format="tsv")
    assert [text for (text,) in cells(path, "text", format="tsv", quoted=True)] == texts
    assert cells(path, "text", format="tsv", quoted=False)[0] == ("plain",)
    assert cells(path, "label", format="tsv")[0] == ("x",), "quotes in other columns have no effect"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "line 1: is a number, not an object"),
        ('["a", 1]\n["b", 0]', "is not JSON .*; write one list of objects, or one"),
        (f'[{{"text": {"1" * 5000}}}]', "is not JSON .*4300 digits.*; write one list of objects"),
    ],
    ids=["numbers", "lists", "long number"],
)
def test_a_list_that_is_not_of_objects_is_refused(tmp_path, content, message):
    refused(message, cells, write(tmp_path / "a.json", content))


@pytest.mark.parametrize("kind", ["classification", "embeddings"])
def test_a_parquet_file_that_is_not_there_is_named(tmp_path, kind):
    source = DATA[kind]("", {"train": (f"{tmp_path}/a.parquet",)}).source
    with pytest.raises(InputError, match="a.parquet: no such file"):
        source.class_names() or list(source.rows(f"{tmp_path}/a.parquet", True))


def test_a_score_beyond_float64_is_refused_by_its_line(tmp_path):
    path = write(tmp_path / "a.jsonl", f'{{"text": "a", "label": 1{"0" * 400}}}\n')
    refused("line 1: the label 1000* is not a number; fix or remove", read, "classification", path, kind="regression")


@pytest.mark.torch
def test_parquet_of_the_library_datasets_is_read(tmp_path):
    """Classes are numbers in these files, which also have the names."""
    datasets = pytest.importorskip("datasets")
    text, classes = datasets.Value("string"), datasets.ClassLabel(names=["O", "B-PER", "I-PER"])

    def file(columns, **features):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        datasets.Dataset.from_dict(columns, features=datasets.Features(features) if features else None).to_parquet(path)
        return str(path)

    path = file({"text": ["a", "b", "c"], "label": [2, 0, -1]}, text=text, label=classes)
    assert cells(path) == [
        {"text": "a", "label": "I-PER"}, {"text": "b", "label": "O"}, {"text": "c", "label": None},
    ]  # fmt: skip
    tagged = {"tokens": [["Ada", "Lovelace", "met"], [], ["Charles"]], "ner_tags": [[1, 2, 0], [], [1]]}
    path = file(tagged, tokens=datasets.List(text), ner_tags=datasets.List(classes))
    found = read("tagging", path)
    assert [(sentence.words, sentence.line) for sentence in found] == [
        (("Ada", "Lovelace", "met"), 1),
        (("Charles",), 3),
    ]
    assert [sentence.tags for sentence in found] == [("B-PER", "I-PER", "O"), ("B-PER",)]
    answer = {"text": ["France"], "answer_start": [12]}
    path = file({"id": ["x"], "context": ["Paris is in France."], "question": ["Where?"], "answers": [answer]})
    assert read("questions", path)[0].label == Answer("France", 12)
    endings = {f"ending{number}": ["a", f"b {number}"] for number in range(3)}
    equal = datasets.ClassLabel(names=["not_equivalent", "equivalent"])
    path = file({"sentence1": ["a", "b", "c"], "sentence2": ["d", "e", "f"], "label": [1, 0, -1]},
                sentence1=text, sentence2=text, label=equal)  # fmt: skip
    assert [example.label for example in read("embeddings", path, "test")] == [None] * 3, "a score is unknown"
    for names in (["0", "1", "2"], ["choice1", "choice2", "choice3"], ["a", "b 1", "b 0"]):
        path = file({"sent1": ["it", "it"], "sent2": ["is", "was"], **endings, "label": [2, 0]}, sent1=text, sent2=text,
                    **dict.fromkeys(endings, text), label=datasets.ClassLabel(names=names))  # fmt: skip
        assert [example.label for example in read("choice", path)] == [2, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"tokens": ["a", "b"], "ner_tags": ["O"]}', "line 1: has 2 words, but 1 tags"),
        ('{"tokens": ["a"], "ner_tags": [0]}', "line 1: ner_tags is not a list of strings; write the names"),
        ('{"tokens": ["a"], "tags": ["PER"]}', "line 1: 'PER' is not a tag"),
        ('{"word": "a", "tag": "O", "sentence": 1}\n{"tag": "O", "sentence": 1}', "line 2: .* needs the columns word"),
        ('{"word": null, "tag": "O", "sentence": 1}', "line 1: number 0 of words, counted from 0, is empty"),
        ('{"tags": ["O"]}', "line 1: there is no field tokens or words; the line has tags"),
        ('{"tokens": ["a", "b"], "tags": ["O", "B-PER"]}\n{"words": ["a", "b"], "tags": ["B-X", "I-PER"]}',
         "line 2: the tag I-PER"),
    ],
)  # fmt: skip
def test_bad_tagged_objects_are_refused(tmp_path, line, message):
    refused(message, read, "tagging", write(tmp_path / "a.jsonl", line + "\n"), scheme="iob2")
