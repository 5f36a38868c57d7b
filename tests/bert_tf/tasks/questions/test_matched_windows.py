"""A teacher's logits reach the student's tokens with the same characters, for any words and windows."""

import numpy as np
import pytest

from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.questions.matched_windows import matched_logits
from bert_tf.tasks.questions.squad_answers import Decoding
from bert_tf.tasks.questions.squad_file import Question
from bert_tf.tasks.questions.squad_task import SquadTask
from bert_tf.tokenization import SPECIAL_TOKENS as SPECIAL
from bert_tf.tokenization import BertTokenizer

CONTEXT = "the tall man said that nobody would ever see the two old schools again , and then he left the town"


def tokenizer_of(folder, words):
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz,"
    tokens = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *dict.fromkeys(words)]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    return BertTokenizer(str(folder / "vocab.txt"), True)


def rows_of(tokenizer, length, stride):
    question = Question("q", "who said that", CONTEXT, (), place="")
    return encoded_split(SquadTask(Decoding(True), stride, 20), [question], tokenizer, length)


@pytest.fixture
def teacher(tmp_path):
    """The rows of a teacher whose vocabulary has the words of the context."""
    return rows_of(tokenizer_of(tmp_path / "words", CONTEXT.replace(",", "").split()), 20, 5)


def logits_of(split):
    """Logits that tell the characters: the first and the last character of each token."""
    found = np.full([len(split), 20, 2], -7, np.float32)
    found[:, 0] = 1000 + np.arange(len(split))[:, np.newaxis]
    for row in range(len(split)):
        begin = int(split.columns["segment_a"].row_lengths()[row]) + 2
        starts, ends = (split.columns[name][row].numpy() for name in ("token_starts", "token_ends"))
        found[row, begin : begin + len(starts)] = np.stack([starts, ends], 1)
    return found


def test_equal_rows_have_the_teachers_logits(teacher):
    outputs = logits_of(teacher)
    found = matched_logits(teacher, teacher, outputs, -1e9)
    expected = [outputs[row, :length] for row, length in enumerate(teacher.lengths)]
    np.testing.assert_array_equal(found, np.concatenate(expected))


@pytest.mark.parametrize("length, stride", [(16, 3), (60, 30), (110, 50)])
def test_other_words_and_windows_match_by_character(teacher, tmp_path, length, stride):
    own = rows_of(tokenizer_of(tmp_path / "letters", ()), length, stride)
    found = np.split(matched_logits(own, teacher, logits_of(teacher), -1e9), np.cumsum(own.lengths)[:-1])
    words = [(at, at + len(word)) for word, at in _places()]
    reached = set()
    for row, values in enumerate(found):
        begin = int(own.columns["segment_a"].row_lengths()[row]) + 2
        starts, ends = (own.columns[name][row].numpy() for name in ("token_starts", "token_ends"))
        assert len(values) == own.lengths[row] and values[0, 0] >= 1000
        for side, characters in enumerate((starts, ends)):
            for character, value in zip(characters, values[begin:-1, side], strict=True):
                known = character in {word[side] for word in words}
                assert value in ((character, -1e9) if known else (-1e9,))
                reached |= {(side, int(character))} if value == character else set()
    assert reached == {(side, word[side]) for word in words for side in range(2)}


def _places():
    at = 0
    for word in CONTEXT.split():
        at = CONTEXT.index(word, at)
        yield word, at
        at += len(word)
