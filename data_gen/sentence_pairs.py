"""Divides documents into the rows of an objective, as ranges of tokens.

Paper: section 3.1 (Task 2) and appendix A.2. Segment B follows segment A in half of the pairs, and comes from another
document in the other half. Pairs fill their rows, except for a share of pairs that are short on purpose. For language
models of one direction, rows are contiguous blocks of text (A. Radford et al., "Improving Language Understanding by
Generative Pre-Training", 2018, section 4.1).

Letters: R rows, D documents, Q sentences, T tokens of a window.
"""

import bisect
import dataclasses
import itertools

import numpy as np


@dataclasses.dataclass(frozen=True)
class Window:
    """Adjacent documents of a corpus in flat arrays."""

    tokens: np.ndarray  # int [T], token ids
    # int64 [Q + 1], the start of each sentence in `tokens`, then the end of the last sentence
    sentence_starts: np.ndarray
    document_starts: np.ndarray  # int64 [D + 1], the index of each document's first sentence, then Q


@dataclasses.dataclass(frozen=True)
class PairRows:
    """The segments of R rows, as ranges of a window's tokens."""

    # `start_a`, `length_a`: int64 [R], start and length of segment A
    start_a: np.ndarray
    length_a: np.ndarray
    # `start_b`, `length_b`: int64 [R], start and length of segment B; the length is 0 in rows of one segment
    start_b: np.ndarray
    length_b: np.ndarray
    is_random_next: np.ndarray  # bool [R], whether segment B is random (label 1 in the original)


def sample_pairs(
    window: Window, documents: range, max_seq_length: int, short_seq_prob: float, rng: np.random.Generator
) -> PairRows:
    """Splits documents into pairs that fill rows of `max_seq_length`. Sentences are collected until they fill a row.
    Either they are split into A and its true continuation B, or only A is kept, and B is drawn from another document of
    the window. In the second case, the unused sentences are collected again for the next row.
    `window`: the documents from which a random B is drawn; at least two.
    `max_seq_length`: row length, including [CLS] and two [SEP].
    `short_seq_prob`: probability that the rows of a document have a target length below the maximum."""
    longest = max_seq_length - 3
    targets = _target_lengths(len(documents), longest, short_seq_prob, rng)
    first, last = window.document_starts[documents.start], window.document_starts[documents.stop]
    # Each row consumes at least one sentence, so there are never more rows than sentences.
    cuts, coins = rng.random(last - first).tolist(), rng.random(last - first).tolist()
    starts = window.sentence_starts[first : last + 1].tolist()
    document_ends = (window.document_starts[documents.start + 1 : documents.stop + 1] - first).tolist()
    rows: list[tuple[int, int, int, bool, int]] = []  # start of A, end of A, end of B, is B random, document
    sentence = 0
    for index, (end, target) in enumerate(zip(document_ends, targets.tolist(), strict=True)):
        while sentence < end:
            gathered = bisect.bisect_left(starts, starts[sentence] + target, sentence + 1, end)
            count, row = gathered - sentence, len(rows)
            end_of_a = sentence + (1 + int(cuts[row] * (count - 1)) if count > 1 else 1)
            is_random = count == 1 or coins[row] < 0.5
            rows.append((starts[sentence], starts[end_of_a], starts[gathered], is_random, index))
            # If B is random, collect the true continuation again, so that no text is lost.
            sentence = end_of_a if is_random else gathered
    start_a, end_of_a, end_of_b, is_random, index = (np.array(column) for column in zip(*rows, strict=True))
    start_b = end_of_a.copy()
    random_rows = np.flatnonzero(is_random)
    start_b[random_rows], end_of_b[random_rows] = _random_segments(
        window, documents.start + index[random_rows], (targets[index] - (end_of_a - start_a))[random_rows], rng
    )
    return _truncate(PairRows(start_a, end_of_a - start_a, start_b, end_of_b - start_b, is_random), longest, rng)


def sample_segments(
    window: Window, documents: range, max_seq_length: int, short_seq_prob: float, rng: np.random.Generator
) -> PairRows:
    """Splits documents into single segments of whole sentences that fill rows of `max_seq_length`.
    `max_seq_length`: row length, including [CLS] and [SEP].
    `short_seq_prob`: probability that the rows of a document have a target length below the maximum."""
    longest = max_seq_length - 2
    targets = _target_lengths(len(documents), longest, short_seq_prob, rng)
    starts = window.sentence_starts.tolist()
    ends = window.document_starts.tolist()
    rows = []
    for document, target in zip(documents, targets.tolist(), strict=True):
        sentence, end = ends[document], ends[document + 1]
        while sentence < end:
            gathered = bisect.bisect_left(starts, starts[sentence] + target, sentence + 1, end)
            rows.append((starts[sentence], starts[gathered]))
            sentence = gathered
    start, end = (np.array(column) for column in zip(*rows, strict=True))
    none = np.zeros(len(rows), np.int64)
    return _truncate(PairRows(start, end - start, end, none, none.astype(bool)), longest, rng)


def cut_blocks(window: Window, documents: range, max_seq_length: int) -> PairRows:
    """Cuts each document into contiguous blocks that fill a row; only the last block of a document may be shorter.
    `max_seq_length`: row length, including [CLS] and [SEP]."""
    longest = max_seq_length - 2
    edges = _document_edges(window, documents)
    start = np.concatenate([np.arange(first, end, longest) for first, end in itertools.pairwise(edges)])
    end = np.minimum(start + longest, edges[np.searchsorted(edges, start, "right")])
    none = np.zeros(len(start), np.int64)
    return PairRows(start, end - start, end, none, none.astype(bool))


def join_documents(window: Window, documents: range, sep_id: int) -> Window:
    """Returns a window with one document, which consists of the given documents with [SEP] between them."""
    edges = _document_edges(window, documents)
    tokens = np.insert(window.tokens[edges[0] : edges[-1]], edges[1:-1] - edges[0], sep_id)
    return Window(tokens, np.array([0, len(tokens)]), np.array([0, 1]))


def _document_edges(window: Window, documents: range) -> np.ndarray:
    """Returns the first token of each document, then the end of the last document, int64 [D + 1]."""
    return window.sentence_starts[window.document_starts[documents.start : documents.stop + 1]]


def _target_lengths(count: int, longest: int, short_seq_prob: float, rng: np.random.Generator) -> np.ndarray:
    short = rng.integers(2, longest + 1, count) if longest > 2 else np.full(count, longest)
    return np.where(rng.random(count) < short_seq_prob, short, longest)


def _random_segments(
    window: Window, own: np.ndarray, wanted: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws segments that start at a random sentence of a random other document. A segment is the shortest sequence of
    sentences with at least `wanted` tokens. If the document has fewer tokens left, the segment is the whole rest of the
    document."""
    other = rng.integers(0, len(window.document_starts) - 2, len(own))
    other += other >= own  # skip the row's own document
    first, end = window.document_starts[other], window.document_starts[other + 1]
    sentence = first + (rng.random(len(own)) * (end - first)).astype(np.int64)
    start = window.sentence_starts[sentence]
    # Take at least one whole sentence, even if A already fills the row.
    last = np.searchsorted(window.sentence_starts, start + np.maximum(wanted, 1))
    return start, window.sentence_starts[np.minimum(last, end)]


def _truncate(rows: PairRows, budget: int, rng: np.random.Generator) -> PairRows:
    """Truncates the longer segment until both segments fit; removes each token at random from the front or the back.
    The result has the same distribution as if tokens were removed one at a time from the segment that is longer at that
    moment, or from B if both segments are equally long."""
    half_up, half_down = (budget + 1) // 2, budget // 2
    keep_a = np.minimum(rows.length_a, np.maximum(budget - rows.length_b, half_up))
    keep_b = np.minimum(rows.length_b, np.maximum(budget - rows.length_a, half_down))
    return dataclasses.replace(
        rows,
        start_a=rows.start_a + rng.binomial(rows.length_a - keep_a, 0.5),
        length_a=keep_a,
        start_b=rows.start_b + rng.binomial(rows.length_b - keep_b, 0.5),
        length_b=keep_b,
    )
