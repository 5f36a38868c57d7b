"""Reading a user's own data: the behavior that all kinds of tasks share."""

import pytest

from bert_tf.core.errors import InputError
from bert_tf.tasks import example_checks
from bert_tf.tasks.choice.choice_files import choice_data
from tests.bert_tf.tasks.reading import DATA, read, texts
from tests.kit import refused, write

QUESTION = '{"id": "%s", "question": "who?", "answers": [{"text": "%s", "answer_start": %s}]}'
SQUAD = (
    '{"data": [{"paragraphs": [{"context": "the man", "qas": [' + QUESTION % (1, "man", 4) + f", {QUESTION}]}}]}}]}}"
)


# A kind's data, and the content of a file with an example that occurs twice, with different right answers.
KINDS = {
    "classification": (lambda *files: texts(*files, id="id"), ".csv", "id,text,label\n1,so,x\n%s,so,%s\n", ("y",)),
    "choice": (choice_data, ".csv", "id,context,choice0,choice1,label\n1,so,a,b,0\n%s,so,a,b,%s\n", ("1",)),
    "tagging": (DATA["tagging"], ".txt", "so O\n\n%.0sso %s\n", ("B-X",)),
    "questions": (DATA["questions"], ".json", SQUAD, ("the", 0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_warns_of_leaks_and_contradictions(tmp_path, kind, caplog):
    make, end, content, other = KINDS[kind]
    path = write(tmp_path / f"a{end}", content % (2, *other))
    source = make("", {"train": (str(path),), "dev": (str(path),)})
    assert source.read("train") is source.read("train") and len(source.read("train")) == 2
    example_checks.warn_of_texts({split: source.read(split) for split in ("train", "dev")})
    assert "2 of 2 dev examples are also in train" in caplog.text
    assert "train: 1 texts occur several times with different labels" in caplog.text


def test_files_of_a_split_may_match_a_glob(tmp_path):
    folder = tmp_path / "a[b]"
    for number in range(2):  # as on the Hugging Face hub
        write(folder / f"train-0000{number}-of-00002.parquet", [{"text": f"a {number}", "label": "x"}])
    for data_dir, paths in ((str(folder), {}), ("", {"train": (f"{tmp_path}/*/train-*",)})):
        data = texts(data_dir, paths)
        assert [example.text_a for example in data.read("train")] == ["a 0", "a 1"] and not data.source.has_dev
    (folder / "train.csv").touch()
    refused("has train.csv and train-00000-of-00002.parquet; choose one", texts(str(folder), {}).read, "train")


@pytest.mark.parametrize("kind", ["classification", "choice", "questions"])
def test_refuses_duplicate_ids(tmp_path, kind):
    make, end, content, other = KINDS[kind]
    path = write(tmp_path / f"a{end}", content % (1, *other))
    data = make("", {"test": (str(path),)})
    refused(r"the id '1' is also the id of .*; give each example a unique id", data.read, "test")


def test_an_id_must_not_be_another_rows_number(tmp_path):
    row = {"context": "so", "choices": ["a", "b"]}
    path = write(tmp_path / "a.jsonl", [row, row | {"id": "r1"}, row])
    assert [example.id for example in read("choice", path, "test")] == [None, "r1", None]
    write(path, [row | {"id": 1}, row])
    message = "line 2: the id '1' is also the id of line 1 .an example without an id has its"
    refused(message, read, "choice", path, "test")


@pytest.mark.parametrize("kind", ["classification", "choice", "tagging"])
def test_a_folder_has_one_file_for_each_split(tmp_path, kind):
    make, _, content, other = KINDS[kind]
    source = make(str(tmp_path), {}).source
    names = {"tagging": ("valid.txt", "dev.txt")}.get(kind, ("dev.csv", "val.csv"))
    refused(r"has none of .*; check the folder, or give --eval_data_path, or --dev_share", source.files, "dev")
    assert not source.has_dev
    for name in names:
        (tmp_path / name).write_text(content % (2, *other))
    refused(f"has {names[0]} and {names[1]}; choose one with --eval_data_path", source.files, "dev")
    assert make(str(tmp_path), {"dev": ("b.csv",)}).source.files("dev") == ["b.csv"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_label_changes_the_identity(tmp_path, kind):
    make, end, content, other = KINDS[kind]
    path, found = tmp_path / f"a{end}", []
    for label in (other, other, {"classification": "x", "choice": "0", "tagging": "O"}.get(kind, ("man", 4))):
        path.write_text(content % (2, *label))
        found += make("", {"train": (str(path),)}).fingerprint("train")
    assert found[0] == found[1] != found[2] and found[0].startswith(f"a{end}, 2 examples, ")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("end", "content"),
    [
        (".json", b"[" * 100_000),
        (".json", b'[{"text": "a", "label": ' + b"9" * 5000 + b"}]"),
        (".json", b'[{"text": "a", "label": 1}, 7]'),
        (".jsonl", b'{"text": 5, "label": {"a": [1]}, "tokens": 3, "entities": 7}\n'),
        (".parquet", b"PAR1 is not one"),
        (".csv", b"text,label\na,{[]}\nb,{[]}\n"),
    ],
    ids=["deep", "long number", "no object", "other types", "no parquet", "set of lists"],
)
def test_damage_is_a_line_with_the_file(tmp_path, kind, end, content):
    path = write(tmp_path / f"train{end}", content)
    try:
        assert KINDS[kind][0]("", {"train": (str(path),)}).read("train"), "another kind of task may read the file"
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
