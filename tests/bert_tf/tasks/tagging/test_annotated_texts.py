"""Texts with ranges of characters, in the layouts that annotation tools document."""

import pandas
import pytest

from tests.bert_tf.tasks import reading
from tests.kit import refused, write

TEXT = "EU rejects Peter Blackburn’s call (🐑 in Baden-Baden)."
ENTITIES = [(0, 2, "ORG"), (11, 26, "PER"), (40, 51, "LOC")]
TAGGED = [
    ("EU", "B-ORG"), ("rejects", "O"), ("Peter", "B-PER"), ("Blackburn", "I-PER"), ("’s", "O"), ("call", "O"),
    ("(", "O"), ("🐑", "O"), ("in", "O"), ("Baden-Baden", "B-LOC"), (")", "O"), (".", "O"),
]  # fmt: skip


def read(folder, rows, split="train"):
    return reading.read("tagging", write(folder / "a.jsonl", rows), split)


# Label Studio counts UTF-16 units.
LABEL_STUDIO = [{"start": at + (at > 35), "end": to + (to > 35), "text": TEXT[at:to], "labels": [name]}
                for at, to, name in ENTITIES]  # fmt: skip


def objects(start, end, type_):
    return [{"id": 1, start: at, end: to, **type_(name)} for at, to, name in ENTITIES]


@pytest.mark.parametrize(
    "row",
    [
        {"tokens": [{"text": "EU", "start": 0}], "spans": objects("start", "end", lambda name: {"label": name})},
        {"label": [list(entity) for entity in reversed(ENTITIES)], "Comments": []},
        {"entities": objects("start_offset", "end_offset", lambda name: {"label": name}), "relations": []},
        {"ents": objects("start", "end", lambda name: {"label": name}) * 2},
        {"label": LABEL_STUDIO},
        {"text": None, "data": {"text": TEXT}, "annotations": [
            {"was_cancelled": True, "result": []},
            {"result": [*({"type": "labels", "value": value} for value in LABEL_STUDIO), {"type": "relation"}]},
        ]},
    ],
    ids=["prodigy", "doccano", "doccano with relations", "spacy", "label studio, minimal", "label studio"],
)  # fmt: skip
def test_ranges_of_characters_become_tags(tmp_path, row):
    (sentence,) = read(tmp_path, [{"text": TEXT, **row}])
    assert list(zip(sentence.words, sentence.tags, strict=True)) == TAGGED


def of_label_studio(text, *annotations):
    return {"id": 1, "data": {"sentence": text}, "annotations": list(annotations)}


def marked(text, word, **more):
    value = {"start": text.index(word), "end": text.index(word) + len(word), "text": word, "labels": ["PER"]}
    return {"result": [{"value": value}], **more}


def test_texts_that_nobody_annotated_are_left_out(tmp_path, caplog):
    cancelled = {"was_cancelled": True, "result": []}
    rows = [
        of_label_studio(
            "Ann met Bob",
            marked("Ann met Bob", "Ann", updated_at="2025-01-02T03:04:05Z"),
            marked("Ann met Bob", "Bob", updated_at="2025-01-01T03:04:05Z"),
            cancelled,
        ),
        of_label_studio(
            "Ann saw Bob",
            marked("Ann saw Bob", "Bob", ground_truth=True),
            marked("Ann saw Bob", "Ann", updated_at="2025-01-01T03:04:05Z"),
        ),
        of_label_studio("skipped", cancelled),
        of_label_studio("open"),
        of_label_studio("no name", {"result": []}),
    ]
    with caplog.at_level("INFO", "absl"):
        found = read(tmp_path, rows)
    assert [sentence.tags for sentence in found] == [("B-PER", "O", "O"), ("O", "O", "B-PER"), ("O", "O")]
    assert "2 texts have several annotations; the ground truth counts, else the newest" in caplog.text
    assert "2 rows are left out, because they were rejected, not annotated, or have no word" in caplog.text
    assert [sentence.words[0] for sentence in read(tmp_path, [of_label_studio("open")], "test")] == ["open"]


def test_a_file_counts_characters_or_utf16_units(tmp_path):
    """The second entity shows that the file counts UTF-16 units, so the first one is the first "ha"."""
    entities = [
        {"start": 7, "end": 9, "text": "ha", "labels": ["X"]},
        {"start": 13, "end": 16, "text": "Ann", "labels": ["PER"]},
    ]
    (sentence,) = read(tmp_path, [{"text": "😀😀😀 ha ha Ann", "label": entities}])
    assert sentence.tags[-3:] == ("B-X", "O", "B-PER")
    at_the_end = {"text": "Ann 😀", "label": [{"start": 0, "end": 6, "text": "Ann 😀", "labels": ["PER"]}]}
    assert read(tmp_path, [at_the_end])[0].tags == ("B-PER", "I-PER")


def test_each_row_may_have_another_field_of_entities(tmp_path):
    rows = [{"text": "Bob spoke", "spans": [{"start": 0, "end": 3, "label": "PER"}], "answer": None},
            {"text": "Rome spoke", "entities": [[0, 4, "LOC"]]}]  # fmt: skip
    assert [sentence.tags[0] for sentence in read(tmp_path, rows)] == ["B-PER", "B-LOC"]


def test_a_word_that_an_entity_cuts_belongs_to_it(tmp_path, caplog):
    rows = [{"text": "in Baden-Baden", "entities": [[3, 8, "LOC"], [9, 14, "LOC"]]}, {"text": "no", "answer": "reject"},
            {"text": "so"}]  # fmt: skip
    found = read(tmp_path, rows)
    assert [(sentence.tags, sentence.line) for sentence in found] == [(("O", "B-LOC"), 1), (("O",), 3)]
    assert "in 1 texts, entities begin or end inside of a word; the whole word belongs to its first" in caplog.text
    assert "1 rows are left out" in caplog.text
    for row in ({"text": TEXT}, {"text": TEXT, "label": []}):
        (untagged,) = read(tmp_path, [row], "test")
        assert untagged.words == tuple(word for word, _ in TAGGED) and untagged.tags is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "the texts have no entities; write lists of them"),
        ({"label": "good"}, "the texts have no entities; write lists of them"),
        ({"text": None, "label": [[0, 1, "LOC"]]}, "line 1: text is not a string"),
        (
            {"label": [[0, 99, "ORG"]]},
            r"line 1: the entity \[0, 99, 'ORG'\] is wrong; an entity needs a start and an end within",
        ),
        (
            {"label": [{"start": 0, "end": 2, "text": "he", "labels": ["PER"]}]},
            "has 'EU' where an entity says 'he'; fix",
        ),
        ({"text": None, "data": {"a": "x", "b": "y"}, "annotations": []}, "has the fields a, b; name the field of the"),
        ({"label": [[0, 2, "ORG"], [1, 5, "PER"]]}, "line 1: ORG and PER overlap at character 1; remove one"),
    ],
)
def test_entities_that_cannot_be_read_are_refused(tmp_path, row, message):
    refused(message, read, tmp_path, [{"text": TEXT, **row}])


def test_a_table_with_a_word_in_each_row_is_read(tmp_path):
    """As in data sets on Kaggle; pandas writes the number of a sentence into each of its rows."""
    words, tags = ["Ada", ",", "Bob", "left"], ["B-per", "O", "B-per", "O"]
    for numbers in (["Sentence: 1", None, "Sentence: 2", None], [1, 1, 2, 2]):
        frame = pandas.DataFrame({"Sentence #": numbers, "Word": words, "POS": list("NPNV"), "Tag": tags})
        path = write(tmp_path / "train.csv", frame)
        first, second = reading.read("tagging", path)
        assert (first.words, first.tags, second.tags) == (("Ada", ","), ("B-per", "O"), ("B-per", "O"))
        assert second.place_of(1) == f"{path}, line 5"
    write(path, frame.drop(columns="Tag"))
    assert [sentence.tags for sentence in reading.read("tagging", path, "test")] == [None, None]
    refused("line 2: a table with one word in each row needs the columns word, tag", reading.read, "tagging", path)
