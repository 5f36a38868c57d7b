import json

import pytest

from bert_tf.core.json_lines import LineError
from data_gen.documents import json_document


def line(**record):
    return json.dumps(record).encode() + b"\n"


@pytest.mark.parametrize(
    "content, expected",
    [
        (line(text="One goes. Two goes.\nThree goes", id=7), ["One goes.", "Two goes.", "Three goes"]),
        (line(text="no end here\nnor here"), ["no end here", "nor here"]),  # the end of a paragraph ends a sentence
        (line(text=["One goes. Two goes.", "", "and\nthree"]), ["One goes.", "Two goes.", "and three"]),
        (line(text=""), []),
        (b" \r\n", []),
        (b"\xef\xbb\xbf" + line(text="One goes."), ["One goes."]),
        (b'{"text": "caf\xc3\xa9 \xff\xfe is open."}', ["café is open."]),
        (line(text=None), []),  # as pandas writes a missing text
        (rb'{"text": "half \ud83d of a pair, whole \ud83d\ude00."}', ["half of a pair, whole 😀."]),
    ],
)
def test_the_sentences_of_a_line(content, expected):
    assert json_document(content, "text") == expected


def test_a_line_is_split_by_the_rules_of_a_language():
    assert json_document(line(text="Je to tj. Praha."), "text", "cs") == ["Je to tj. Praha."]


def test_the_field_is_the_one_asked_for():
    assert json_document(line(text="Not this.", body="But this."), "body") == ["But this."]


@pytest.mark.parametrize(
    "content, message",
    [
        (b'{"text": "a"', "is not JSON (Expecting ',' delimiter at character 13); write one object per line"),
        (b"plain text", "is not JSON (Expecting value at character 1)"),
        (b'["text"]', "is a list, not an object"),
        (line(body="a", id=3), "no field 'text'; give one of its fields as --text_field: 'body', 'id'"),
        (line(text=4), "field 'text' must be a string or a list of strings, found a number"),
        (line(text=["a", 3]), "field 'text' must be a list of strings, found a number in it"),
        (b'{"text":' + b"[" * 100_000, "is not JSON ("),
        (b'{"text":' + b"9" * 10_000 + b"}", "is not JSON ("),
    ],
)
def test_what_is_wrong_with_a_line(content, message):
    with pytest.raises(LineError) as raised:
        json_document(content, "text")
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)
