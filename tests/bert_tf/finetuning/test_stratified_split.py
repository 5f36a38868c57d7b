"""Division into training data and held-out data: stratified, by content and seed, and without shared texts."""

from collections import Counter

import numpy as np

from bert_tf.finetuning.stratified_split import content_of, held_out
from tests.kit import refused


def _examples(**counts):
    return [(f"{name} {number}", name) for name, count in counts.items() for number in range(count)]


def _held(examples, share=0.1, seed=0):
    texts, classes = zip(*examples, strict=True)
    chosen = held_out([content_of(text) for text in texts], classes, share, seed)
    return {example for example, is_held in zip(examples, chosen, strict=True) if is_held}


def test_each_class_has_the_share():
    held = _held(_examples(good=70, bad=20, none=10))
    assert Counter(name for _, name in held) == {"good": 7, "bad": 2, "none": 1}
    # Quotas of 9.5 and 0.5: their sum stays 10, and the rarer class gets the undecided example.
    assert Counter(name for _, name in _held(_examples(good=95, bad=5))) == {"good": 9, "bad": 1}
    # Quotas of 1.7 and 0.3: the class with the larger remainder gets the second example.
    assert Counter(name for _, name in _held(_examples(good=17, bad=3))) == {"good": 2}


def test_case_and_space_variants_stay_together():
    examples = [
        (spelled, "ab"[number % 2]) for number in range(40) for spelled in (f"Text {number}", f"text  {number} ")
    ]
    held = {content_of(text) for text, _ in _held(examples)}
    kept = {content_of(text) for text, _ in set(examples) - _held(examples)}
    assert len(held) == 4 and not held & kept


def test_class_keeps_an_example_and_one_is_held_out():
    assert len(_held(_examples(a=3, b=3), share=0.01)) == 1
    kept = set(examples := _examples(a=2, b=1)) - _held(examples, share=0.9)
    assert {name for _, name in kept} == {"a", "b"}


def test_a_share_that_leaves_a_part_empty_is_refused():
    refused("holds out none", _held, [("same", "a")] * 10)


def test_without_classes_it_is_a_random_share():
    held = held_out([str(number) for number in range(1000)], [None] * 1000, 0.25, 0)
    assert held.sum() == 250 and 50 < held[:500].sum() < 200
    assert not np.array_equal(np.flatnonzero(held)[:10], np.arange(10))
