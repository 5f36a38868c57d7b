"""Sampling sentence pairs for the next-sentence task.

Paper: section 3.1 (Task 2) and appendix A.2: half of the time B follows A, half of the time it comes
from another document; pairs fill the row, some are cut short on purpose.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from data_gen.documents import Document

_TRIES_FOR_ANOTHER_DOCUMENT = 10


@dataclasses.dataclass(frozen=True)
class SentencePair:
    """Segments A and B as ids, and whether B is random (the original's label 1)."""

    tokens_a: np.ndarray
    tokens_b: np.ndarray
    is_random_next: bool


def pairs_from_document(
    documents: Sequence[Document],
    index: int,
    max_seq_length: int,
    short_seq_prob: float,
    rng: np.random.Generator,
) -> Iterator[SentencePair]:
    """Cuts one document into pairs that fill rows of `max_seq_length`.

    Sentences are gathered until they fill a row; the gathered ones are cut into A and its true
    continuation, or A alone is kept and B drawn from another document, in which case the unused
    sentences are gathered again.

    Args:
      documents: where the random B comes from; at least two.
      index: the document to cut.
      max_seq_length: row length, [CLS] and two [SEP] counted.
      short_seq_prob: how often the document is cut to a shorter length than the maximum.
      rng: source of randomness.
    """
    document = documents[index]
    longest = max_seq_length - 3
    target = _target_length(longest, short_seq_prob, rng)
    gathered: list[np.ndarray] = []
    length, position = 0, 0
    while position < len(document):
        gathered.append(document[position])
        length += len(document[position])
        position += 1
        if position < len(document) and length < target:
            continue
        end_of_a = int(rng.integers(1, len(gathered))) if len(gathered) >= 2 else 1
        tokens_a = np.concatenate(gathered[:end_of_a])
        is_random = len(gathered) == 1 or rng.random() < 0.5
        if is_random:
            tokens_b = _random_segment(documents, index, max(1, target - len(tokens_a)), rng)
            # what B would have been goes back, so that no text is lost
            position -= len(gathered) - end_of_a
        else:
            tokens_b = np.concatenate(gathered[end_of_a:])
        yield SentencePair(*truncate_pair(tokens_a, tokens_b, longest, rng), is_random)
        gathered, length = [], 0


def _target_length(longest: int, short_seq_prob: float, rng: np.random.Generator) -> int:
    return int(rng.integers(2, longest + 1)) if rng.random() < short_seq_prob else longest


def _random_segment(documents: Sequence[Document], index: int, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Sentences of another document from a random one on, until `wanted` pieces are there."""
    other = index
    for _ in range(_TRIES_FOR_ANOTHER_DOCUMENT):
        other = int(rng.integers(len(documents)))
        if other != index:
            break
    if other == index:
        other = (index + 1) % len(documents)
    document = documents[other]
    sentences, length = [], 0
    for sentence in document[int(rng.integers(len(document))) :]:
        sentences.append(sentence)
        length += len(sentence)
        if length >= wanted:
            break
    return np.concatenate(sentences)


def truncate_pair(
    tokens_a: np.ndarray, tokens_b: np.ndarray, budget: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Takes pieces from the longer segment, each from its front or its back at even odds, until both fit."""
    front = {"a": 0, "b": 0}
    back = {"a": len(tokens_a), "b": len(tokens_b)}
    for from_front in rng.random(max(0, len(tokens_a) + len(tokens_b) - budget)) < 0.5:
        longer = "a" if back["a"] - front["a"] > back["b"] - front["b"] else "b"
        if from_front:
            front[longer] += 1
        else:
            back[longer] -= 1
    return tokens_a[front["a"] : back["a"]], tokens_b[front["b"] : back["b"]]
