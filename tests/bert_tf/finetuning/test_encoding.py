"""Caches of tokenized examples: equal to tokenizing, another file after any change, and safe if a file is damaged."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning import encoding
from bert_tf.finetuning.encoding import encoded_split
from bert_tf.tasks.classification.classification_task import Example
from bert_tf.tokenization import BertTokenizer
from tests.bert_tf.classification import make_task
from tests.bert_tf.finetuning.word_task import FindTheWord

EXAMPLES = [Example("the man", "", "0"), Example("", "a \u00e9 \n thing", "1"), Example("the the", "man", "1")]


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return BertTokenizer(vocab_file)


def cached_split(*arguments, writes=True):
    split, keep = encoding.cached_split(*arguments)
    if writes:
        keep()
    return split


def assert_same(found, expected):
    assert found.examples == expected.examples and found.columns.keys() == expected.columns.keys()
    np.testing.assert_array_equal(found.example_ids, expected.example_ids)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    for name, column in expected.columns.items():
        again = found.columns[name]
        assert again.dtype == column.dtype and isinstance(again, tf.RaggedTensor) == isinstance(column, tf.RaggedTensor)
        assert (
            again.to_list() == column.to_list()
            if isinstance(column, tf.RaggedTensor)
            else np.array_equal(again, column)
        )


@pytest.mark.parametrize(
    ("task", "examples"), [(make_task(2), EXAMPLES), (FindTheWord(""), ["the man", "a thing the"])]
)
def test_a_cache_gives_what_encoding_gives_without_encoding(tokenizer, tmp_path, monkeypatch, task, examples):
    monkeypatch.setattr(encoding, "_ROWS_PER_RECORD", 2)
    expected = encoded_split(task, examples, tokenizer, 16)
    assert_same(cached_split("dev", task, examples, tokenizer, 16, str(tmp_path), writes=False), expected)
    assert not list(tmp_path.iterdir())
    assert_same(cached_split("dev", task, examples, tokenizer, 16, str(tmp_path / "new")), expected)
    monkeypatch.setattr(encoding, "encoded_split", None)
    again = cached_split("dev", task, examples, tokenizer, 16, str(tmp_path / "new"))
    assert_same(again, expected)
    assert list(again.columns) == sorted(again.columns), "the same order in each process"


def test_another_text_label_vocabulary_length_or_task_is_another_cache(tokenizer, vocab_file, tmp_path):
    two = make_task(2)

    def key(task=two, examples=EXAMPLES, tokenizer=tokenizer, length=16):
        return encoding._key(task, examples, tokenizer, length)

    other_text = [*EXAMPLES[:2], Example("the the", "man ", "1")]
    other_label = [*EXAMPLES[:2], Example("the the", "man", "0")]
    lines = open(vocab_file).read().splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n")
    keys = [
        key(), key(examples=other_text), key(examples=other_label), key(examples=EXAMPLES[:2]),
        key(examples=EXAMPLES[::-1]), key(task=make_task(3)), key(task=dataclasses.replace(make_task(2), name="x")),
        key(length=17), key(tokenizer=BertTokenizer(vocab_file, do_lower_case=False)),
        key(tokenizer=BertTokenizer(str(tmp_path / "vocab.txt"))),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert key() == key(examples=[dataclasses.replace(example) for example in EXAMPLES])


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-3], lambda data: b"", lambda data: data[:40] + b"x" + data[41:],
     lambda data: data[: 16 + int.from_bytes(data[:8], "little")]],
    ids=["cut", "empty", "changed", "first_record_only"],
)  # fmt: skip
def test_a_damaged_cache_is_written_again(tokenizer, tmp_path, damage, monkeypatch):
    monkeypatch.setattr(encoding, "_ROWS_PER_RECORD", 2)
    task = make_task(2)
    expected = cached_split("train", task, EXAMPLES, tokenizer, 16, str(tmp_path))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert_same(cached_split("train", task, EXAMPLES, tokenizer, 16, str(tmp_path)), expected)
    assert path.read_bytes() == whole


def test_a_cache_replaces_that_of_the_same_split(tokenizer, tmp_path):
    for name, examples in (("train", EXAMPLES), ("dev", EXAMPLES), ("train", EXAMPLES[:1])):
        cached_split(name, make_task(2), examples, tokenizer, 16, str(tmp_path))
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["dev", "train"]


def test_a_kill_while_it_is_written_leaves_no_cache_and_a_full_disk_is_no_error(tokenizer, tmp_path, monkeypatch):
    def fails(rows):
        raise error

    monkeypatch.setattr(encoding, "_record", fails)
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        cached_split("dev", make_task(2), EXAMPLES, tokenizer, 16, str(tmp_path))
    assert not list(tmp_path.glob("*.tfrecord"))
    error = OSError(28, "No space left on device")
    assert len(cached_split("dev", make_task(2), EXAMPLES, tokenizer, 16, str(tmp_path))) == 3
    assert not list(tmp_path.iterdir())
