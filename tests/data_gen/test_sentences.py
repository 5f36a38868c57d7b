import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen import sentences
from data_gen.sentences import split_sentences
from tests.kit import refused


@pytest.mark.parametrize(
    "expected",
    [
        ["Mr. Smith went to Washington.", "He met Dr. Jones at 3 p.m. in the U.S. Senate."],
        ['"Where are you going?" she asked.', 'He said: "I am leaving."', "Then he left."],
        ["Some fruits, e.g. apples, i.e. Malus domestica, are red.", "Others are not."],
        ["It was written by Smith et al. in 1999.", "They used Python 3.11."],
    ],
)
def test_a_full_stop_is_no_end_by_itself(expected):
    assert split_sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    "language, expected",
    [
        ("de", ["Am 3. Mai kam er, vgl. Nr. 3.", "Dann ging er."]),
        ("cs", ["Žije tu tzv. Karel.", "Je to tj. Praha."]),  # by Slovak rules
        ("pl", ["Ul. Długa i np. Warszawa.", "Tam mieszka."]),
        ("ko", ["그는 갔다.", "그녀는 왔다."]),  # by English rules
    ],
)
def test_languages_have_their_own_rules(language, expected):
    assert split_sentences(" ".join(expected), language) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", []),
        (" \n\t\u3000", []),
        ("  One goes\nhere.\r\n Two\u00a0goes  there. ", ["One goes here.", "Two goes there."]),
        ("A heading\n \nThen a sentence.", ["A heading", "Then a sentence."]),
        # the library's limit, which single spaces avoid
        ("B\u2028. goes on", ["B . goes on"]),
        ("J.\u3000R. Tolkien wrote.", ["J. R. Tolkien wrote."]),
    ],
)
def test_white_space(text, expected):
    assert split_sentences(text) == expected


_ODD = st.text(alphabet="aB .!?…。\"'“”()[]«»‘’\n\r\t\u2028\u3000\u0085\x1c\u00a0１İé́😀", max_size=60)


@given(_ODD | st.text(max_size=60), st.sampled_from(["en", "de", "el", "hy", "ja", "my", "ta", "zh"]))
def test_nothing_is_lost_but_white_space(text, language):
    found = split_sentences(text, language)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence and sentence == " ".join(sentence.split()) for sentence in found)


def test_a_missing_library_is_said_with_its_mend(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    sentences.load.cache_clear()
    refused(r"sentencex is not installed.*pip install sentencex", split_sentences, "One. Two.")
