import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from bert_tf.finetuning.batches import row_batches
from bert_tf.finetuning.evaluation import evaluate_rows
from bert_tf.finetuning.model import FineTuningObjective
from bert_tf.finetuning.row_plan import plan_evaluation
from bert_tf.finetuning.task import encoded_split
from bert_tf.tasks.classification.example import Example
from bert_tf.tasks.classification.reading import LongTextRule
from bert_tf.text import packing
from bert_tf.text.packing import cut_windows
from tests.bert_tf.classification import make_task

CLS, SEP = 101, 102
WINDOW = LongTextRule(long_text="window", window_stride=3)


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def head_tail(a, b, max_seq_length):
    b = None if b is None else ragged(b)
    options = {"max_seq_length": max_seq_length, "cls_id": CLS, "sep_id": SEP, "with_tail": True}
    return packing.pack(ragged(a), b, **options)["input_ids"].numpy().tolist()


def test_head_is_a_quarter_and_tail_the_rest():
    assert head_tail([range(10), [1, 2]], None, 8) == [[CLS, 0, 1, 6, 7, 8, 9, SEP], [CLS, 1, 2, SEP, 0, 0, 0, 0]]
    (row,) = head_tail([range(1000)], None, 512)
    assert row[1:-1] == [*range(128), *range(1000 - 382, 1000)], "510 tokens: 128 and 382, as in Sun et al."


def test_truncation_keeps_head_and_tail_of_a_pair():
    assert head_tail([range(10)], [[50, 51]], 9) == [[CLS, 0, 7, 8, 9, SEP, 50, 51, SEP]]
    assert head_tail([range(10)], [range(50, 70)], 11) == [[CLS, 0, 7, 8, 9, SEP, 50, 67, 68, 69, SEP]]


def cut(a, b, max_seq_length, stride, truncation_side="right"):
    b = None if b is None else ragged(b)
    a, b, examples = cut_windows(
        ragged(a), b, max_seq_length=max_seq_length, stride=stride, truncation_side=truncation_side
    )
    return a.to_list(), None if b is None else b.to_list(), examples.numpy().tolist()


def test_windows_start_a_stride_apart():
    assert cut([[1, 2], range(9), []], None, 6, 3) == (
        [[1, 2], [0, 1, 2, 3], [3, 4, 5, 6], [5, 6, 7, 8], []], None, [0, 1, 1, 1, 2]
    )  # fmt: skip
    assert cut([range(9)], None, 6, 0)[0] == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [5, 6, 7, 8]]


def test_left_truncation_applies_to_the_uncut_text():
    short, moving = list(range(5)), list(range(20, 27))
    for side, kept in (("right", [0, 1]), ("left", [3, 4])):
        windows = [[20, 21], [22, 23], [24, 25], [25, 26]]
        assert cut([short], [moving], 7, 2, side)[:2] == ([kept] * 4, windows)
        assert cut([moving], [short], 7, 2, side)[:2] == (windows, [kept] * 4)


def test_longer_text_of_pair_is_cut_into_windows():
    short, moving = [7, 8], list(range(20, 26))
    expected = [[20, 21, 22], [22, 23, 24], [23, 24, 25]]
    assert cut([short], [moving], 8, 2) == ([short] * 3, expected, [0, 0, 0])
    assert cut([moving], [short], 8, 2) == (expected, [short] * 3, [0, 0, 0])
    a, b, _ = cut([range(6)], [range(10, 16)], 7, 9)  # both too long: 2 and 2 tokens, and windows leave no gap
    assert a == [[0, 1]] * 3 and b == [[10, 11], [12, 13], [14, 15]]
    assert cut([[], [1, 2, 3, 4, 5]], [[], []], 5, 0) == ([[], [1, 2, 3], [3, 4, 5]], [[], [], []], [0, 1, 1])


@pytest.mark.parametrize("seed", range(3))
def test_windows_lose_no_token_and_fit_into_rows(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 40, (2, 30))
    a, b = ([list(range(n)) for n in row] for row in lengths)
    first, second, examples = cut(a, b, 12, int(rng.integers(0, 7)))
    assert all(len(x) + len(y) <= 12 - 2 - bool(y) for x, y in zip(first, second, strict=True))
    for index, (x, y) in enumerate(zip(a, b, strict=True)):
        seen = [set().union(*(p[i] for i, e in enumerate(examples) if e == index)) for p in (first, second)]
        longer = len(y) >= len(x)
        assert seen[longer] == set((x, y)[longer])
        assert seen[1 - longer] == set((x, y)[1 - longer][: len(seen[1 - longer])])


class Counter(keras.Model):
    """Returns logits that grow with the ids of a row, so that each window has different logits."""

    def call(self, inputs, training=False, seed=None):
        total = tf.reduce_sum(tf.cast(inputs["input_ids"], tf.float32), axis=1, keepdims=True) / 1000
        return {"logits": tf.concat([total, 1 - total], axis=1)}


EXAMPLES = [
    Example("the man", None, "1"), Example("the man said he was there and all of you had", None, "0"),
    Example("he was there with all of you", None, "1"),
]  # fmt: skip


@pytest.mark.parametrize("batch_size", [2, 16])
def test_each_example_counts_once_in_the_loss(tokenizer, batch_size):
    task = dataclasses.replace(make_task(2, has_pairs=False), reading=WINDOW)
    split = encoded_split(task, EXAMPLES, tokenizer, 7)
    assert split.example_ids.tolist() == [0, 1, 1, 1, 2, 2]
    plan = plan_evaluation(split.lengths, batch_size=batch_size, max_seq_length=7)
    objective = FineTuningObjective(Counter(), task)
    logits, loss = evaluate_rows(
        objective, task.prediction, tf.distribute.get_strategy(),
        lambda context: row_batches(split, task, tokenizer, plan, max_seq_length=7, input_context=context), len(split),
    )  # fmt: skip
    labels = split.columns["label_ids"].numpy().astype(int)
    losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(6), labels]
    example_losses = [losses[split.example_ids == example].mean() for example in range(3)]
    np.testing.assert_allclose(loss["loss"], np.mean(example_losses), rtol=1e-6)
    by_example, means = task.by_example(split, logits)
    expected = [logits[split.example_ids == example].mean(axis=0) for example in range(3)]
    np.testing.assert_allclose(means, expected, rtol=1e-6)
    assert by_example.columns["label_ids"].numpy().tolist() == [1, 0, 1] and len(by_example) == 3
    assert task.scores(split=by_example, predictions=means).keys() == {"accuracy"}
