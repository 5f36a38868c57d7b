"""Reading files of CoNLL-2003, CoNLL-2002 and similar formats; errors name file and line."""

import gzip
import logging

import pytest

from bert_tf.tasks.tagging import conll_files
from bert_tf.tasks.tagging.conll_files import Sentence, WordColumns
from bert_tf.tasks.tagging.tagged_objects import sentence_of
from tests.bert_tf.tasks import reading
from tests.bert_tf.tasks.reading import tagged
from tests.kit import refused, write

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

-DOCSTART- -X- O O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
"""


def read(tmp_path, content, layout=None, **how):
    return sentences(write(tmp_path / "train.txt", content), layout or WordColumns(), **how)


def sentences(path, layout, with_tags=True):
    rows = conll_files.rows(str(path), layout, with_tags)
    return [sentence_of(place, row, with_tags) for place, row in rows]


def test_the_layouts_of_the_shared_tasks(tmp_path):
    first, second = read(tmp_path, CONLL_2003)
    assert first == Sentence(("EU", "rejects"), ("I-ORG", "O"), 3, starts_document=True)
    assert second == Sentence(("Peter", "Blackburn"), ("I-PER", "I-PER"), 8, starts_document=True)
    assert read(tmp_path, "Wolff B-PER\n, O\n") == [Sentence(("Wolff", ","), ("B-PER", "O"), 1)]
    # tabs, a byte order mark, Windows newlines, no newline at the end, blank lines of spaces, words with odd spaces
    content = "\ufeffa b\tB-X\r\n \t\r\n\r\nc\u00a0d\u2028\tO\r\ne\u0085\tO"
    expected = [Sentence(("a b",), ("B-X",), 1), Sentence(("c\u00a0d\u2028", "e\u0085"), ("O", "O"), 4)]
    assert read(tmp_path, content) == expected
    assert read(tmp_path, "O 7 Bonn\nB-X 8 Rom\n", WordColumns(2, 0)) == [Sentence(("Bonn", "Rom"), ("O", "B-X"), 1)]
    assert read(tmp_path, "Bonn\nRom\n", with_tags=False) == [Sentence(("Bonn", "Rom"), None, 1)]
    # a document starts right before its first sentence, without a blank line
    assert [s.starts_document for s in read(tmp_path, "a O\n-DOCSTART- O\nb O\n\nc O\n")] == [False, True, False]


@pytest.mark.parametrize(
    ("comment", "columns"),
    [
        ("#\tn-tv.de vom 26.02.2005 [2005-02-26]", "1\t{}\t{}\tO"),  # GermEval
        ("# id 5239d808\tdomain=train", "{} _ _ {}"),  # MultiCoNER
        ("# sent_id = 1", "{} NN I-NP {}"),  # as many columns as a word
    ],
)
def test_comments_precede_sentences(tmp_path, comment, columns):
    """But # may also be a word."""
    rows = [columns.format(*row) for row in (("Rom", "B-LOC"), ("#", "O"), ("#1", "B-X"))]
    content = "\n".join([comment, comment, *rows, "", comment, rows[0], "", *rows[1:], ""])
    layout = WordColumns(1, 2) if columns[0] == "1" else WordColumns()
    (first, *others) = read(tmp_path, content, layout)
    assert first == Sentence(("Rom", "#", "#1"), ("B-LOC", "O", "B-X"), 3)
    assert [sentence.words for sentence in others] == [("Rom",), ("#", "#1")]
    assert [len(sentence.words) for sentence in read(tmp_path, content, layout, with_tags=False)][-1] == 2


@pytest.mark.parametrize("content", ["Bonn\nRom\n", "Bonn _\nRom _\n", "Bonn NNP\nRom NNP\n", "Bonn B-X\nRom I-Y\n"])
def test_test_data_may_lack_tags(tmp_path, caplog, content):
    path = write(tmp_path / "test.txt", content)
    with caplog.at_level(logging.INFO):
        (found,) = reading.read("tagging", path, "test")
    assert (found.words, found.tags) == (("Bonn", "Rom"), None)
    assert "test.txt: is read without labels, so predictions are written, but no metrics" in caplog.text


@pytest.mark.parametrize("content", ["Bonn\tB-X\nam\tO\n", "Bonn B-X\nam O\n"])
def test_a_conll_file_may_be_named_csv(tmp_path, content):
    path = write(tmp_path / "train.csv", content)
    assert [(found.words, found.tags) for found in reading.read("tagging", path)] == [(("Bonn", "am"), ("B-X", "O"))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a O\nb\n", "train.txt, line 2: has 1 columns, the first line has 2"),
        ("\n\na x O\nb O\n", "train.txt, line 4: has 2 columns, the first line has 3"),
        ("a\nb\n", "train.txt, line 1: has 1 columns, so the word and the tag are in the same column"),
        ("a O\nb NNP\n", "train.txt, line 2: 'NNP' is not a tag; a tag is O, or .* check --tag_column"),
        (b"a O\n\xff O\n", "train.txt, line 2: not UTF-8"),
        (gzip.compress(b"a O\n", mtime=0), "train.txt: is compressed with gzip; unpack it"),
        ("1 a O\n2 b O\n\n1 c O\n", "train.txt: column 0 contains the numbers of words, .* --word_column"),
    ],
)
def test_bad_files_are_refused_by_file_and_line(tmp_path, content, message):
    refused(message, read, tmp_path, content)


def test_columns_that_are_not_there_are_refused(tmp_path):
    for layout, flag in ((WordColumns(2, -1), "--word_column=2"), (WordColumns(0, -3), "--tag_column=-3")):
        refused(f"line 1: has 2 columns, counted from 0; {flag} is not one of them", read, tmp_path, "a O\n", layout)


def test_impossible_tags_are_refused_or_repaired(tmp_path, caplog):
    content = "a B-X\n\n" * 3 + "b O\nc I-X\n\nd O\ne I-X\n"
    path = write(tmp_path / "train.txt", content)
    message = r"train.txt, line 8: the tag I-X should be B-X in IOB2 \(and 1 more sentences\); fix the tags"
    refused(message, reading.read, "tagging", path)
    refused("line 1: the tag B-X should be I-X in IOB1", reading.read, "tagging", path, scheme="iob1")
    assert len(reading.read("tagging", path, repairs=True)) == 5
    assert "2 sentences have tags that IOB2 does not allow" in caplog.text


def test_finds_files_by_shared_task_names(tmp_path):
    source = tagged(str(tmp_path), {}).source
    for split, name in (("train", "esp.train"), ("dev", "valid.txt"), ("test", "eng.testb")):
        (tmp_path / name).write_text("a O\n")
        assert source.files(split) == [str(tmp_path / name)]


def test_predictions_are_in_official_scorer_format(tmp_path):
    written = read(tmp_path, CONLL_2003)
    path = tmp_path / "out.txt"
    conll_files.write_predictions(str(path), written, [["O", "O"], ["I-PER", "O"]])
    lines = path.read_text().splitlines()
    assert lines == ["-DOCSTART- O O", "", "EU I-ORG O", "rejects O O", "", "-DOCSTART- O O", "",
                     "Peter I-PER I-PER", "Blackburn I-PER O", ""]  # fmt: skip
    again = sentences(path, WordColumns(0, 1))
    assert [s.words for s in again] == [s.words for s in written]
    conll_files.write_predictions(str(path), [Sentence(("New York", "x"), None, 1)], [["B-LOC", "O"]])
    assert path.read_text() == "New York\tB-LOC\nx\tO\n\n"
