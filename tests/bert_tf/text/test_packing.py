import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text import packing

CLS, SEP = 101, 102


def pack(a, b, max_seq_length, **form):
    ragged_a = tf.ragged.constant(a, tf.int32, ragged_rank=1)
    ragged_b = None if b is None else tf.ragged.constant(b, tf.int32, ragged_rank=1)
    rows = packing.pack(ragged_a, ragged_b, max_seq_length=max_seq_length, cls_id=CLS, sep_id=SEP, **form)
    return {name: value.numpy().tolist() for name, value in rows.items()}


def test_pairs_are_packed_as_in_the_paper():
    assert pack([[1, 2], [3]], [[4], [5, 6, 7]], 8) == {
        "input_ids": [[CLS, 1, 2, SEP, 4, SEP, 0, 0], [CLS, 3, SEP, 5, 6, 7, SEP, 0]],
        "input_mask": [[1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0]],
        "segment_ids": [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 0]],
    }


def test_single_texts_fill_the_row_up_to_two_marks():
    assert pack([[1, 2, 3, 4, 5], [6], []], None, 5) == {
        "input_ids": [[CLS, 1, 2, 3, SEP], [CLS, 6, SEP, 0, 0], [CLS, SEP, 0, 0, 0]],
        "input_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]],
        "segment_ids": [[0] * 5, [0] * 5, [0] * 5],
    }


def test_an_empty_segment_is_none_only_where_it_is_b():
    assert pack([[1, 2, 3, 4], [], []], [[], [5, 6], []], 6) == {
        "input_ids": [[CLS, 1, 2, 3, 4, SEP], [CLS, SEP, 5, 6, SEP, 0], [CLS, SEP, 0, 0, 0, 0]],
        "input_mask": [[1] * 6, [1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0]],
        "segment_ids": [[0] * 6, [0, 0, 1, 1, 1, 0], [0] * 6],
    }


def test_truncation_keeps_the_start_of_each_segment():
    rows = pack([[1, 2, 3, 4, 5], [1, 2, 3]], [[6, 7], [4, 5, 6, 7, 8, 9]], 7)
    # 4 tokens fit: A of 5 loses 3; B of 6 loses tokens until both are equal, then B first and A in turn: 2 and 2
    assert rows["input_ids"] == [[CLS, 1, 2, SEP, 6, 7, SEP], [CLS, 1, 2, SEP, 4, 5, SEP]]
    assert rows["segment_ids"] == [[0, 0, 0, 0, 1, 1, 1]] * 2


def test_left_truncation_keeps_the_end_of_each_segment():
    rows = pack([[1, 2, 3, 4, 5], [1, 2, 3], [1]], [[6, 7], [4, 5, 6, 7, 8, 9], []], 7, truncation_side="left")
    assert rows["input_ids"] == [
        [CLS, 4, 5, SEP, 6, 7, SEP], [CLS, 2, 3, SEP, 8, 9, SEP], [CLS, 1, SEP, 0, 0, 0, 0]
    ]  # fmt: skip
    assert pack([[1, 2, 3]], None, 4, truncation_side="left")["input_ids"] == [[CLS, 2, 3, SEP]]


def test_rows_without_token_types_have_one_segment():
    rows = pack([[1, 2]], [[3]], 7)
    assert pack([[1, 2]], [[3]], 7, has_token_types=False) == rows | {"segment_ids": [[0] * 7]}


def test_an_empty_batch_gives_no_rows():
    empty = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), tf.zeros([0], tf.int64))
    rows = packing.pack(empty, None, max_seq_length=4, cls_id=CLS, sep_id=SEP)
    assert [value.shape.as_list() for value in rows.values()] == [[0, 4]] * 3


def pop_one_at_a_time(length_a, length_b, budget):
    # truncate_seq_pair of google-research/bert: the longer segment loses a token, B if both are equal
    while length_a + length_b > budget:
        if length_a > length_b:
            length_a -= 1
        else:
            length_b -= 1
    return length_a, length_b


def test_truncated_lengths_equal_popping_single_pieces():
    sizes = list(itertools.product(range(15), range(15)))
    length_a, length_b = (tf.constant(side, tf.int64) for side in zip(*sizes, strict=True))
    for budget in range(20):
        kept = np.stack([side.numpy() for side in packing.truncated_lengths(length_a, length_b, budget)], 1)
        assert kept.tolist() == [list(pop_one_at_a_time(a, b, budget)) for a, b in sizes]


@pytest.mark.parametrize("pairs", [False, True])
def test_a_graph_packs_batches_of_any_size(pairs):
    spec = tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)

    @tf.function(input_signature=[spec] * (1 + pairs))
    def in_graph(a, b=None):
        rows = packing.pack(a, b, max_seq_length=6, cls_id=CLS, sep_id=SEP)
        assert all(value.shape.as_list() == [None, 6] and value.dtype == tf.int32 for value in rows.values())
        return rows

    for a, b in (([[1, 2, 3, 4, 5], []], [[], [7]]), ([[8]], [[9, 9, 9, 9]])):
        segments = [tf.ragged.constant(side, tf.int32, ragged_rank=1) for side in (a, b)[: 1 + pairs]]
        rows = {name: value.numpy().tolist() for name, value in in_graph(*segments).items()}
        assert rows == pack(a, b if pairs else None, 6)
