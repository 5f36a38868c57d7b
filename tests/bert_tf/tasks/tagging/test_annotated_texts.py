"""Texts with ranges of characters, in the layouts that annotation tools document."""

import json

import pytest

from bert_tf.core.errors import InputError
from bert_tf.tasks.tagging.conll_files import WordColumns
from bert_tf.tasks.tagging.tagging_data import TaggedFiles

TEXT = "EU rejects Peter Blackburn’s call (🐑 in Baden-Baden)."
ENTITIES = [(0, 2, "ORG"), (11, 26, "PER"), (40, 51, "LOC")]
TAGGED = [
    ("EU", "B-ORG"), ("rejects", "O"), ("Peter", "B-PER"), ("Blackburn", "I-PER"), ("’s", "O"), ("call", "O"),
    ("(", "O"), ("🐑", "O"), ("in", "O"), ("Baden-Baden", "B-LOC"), (")", "O"), (".", "O"),
]  # fmt: skip


def read(path, rows, split="train"):
    path = path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return TaggedFiles(WordColumns()).read(str(path), split)


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
        ({"label": [[0, 99, "ORG"]]}, r"line 1: label has \[0, 99, 'ORG'\]; an entity needs a start and an end within"),
        ({"label": [[0, 2, "ORG"], [1, 5, "PER"]]}, "line 1: ORG and PER overlap at character 1; remove one"),
    ],
)
def test_entities_that_cannot_be_read_are_refused(tmp_path, row, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, [{"text": TEXT, **row}])
