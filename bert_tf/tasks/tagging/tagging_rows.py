"""Tagged sentences to rows: words to tokens, long sentences to several rows, sentences of a document as context.

Paper: section 5.3: the first token of each word is labeled, and the input has the maximal document context.

Letters: S sequence length, N rows.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.task import tokenize
from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.tokenization import BertTokenizer

# The label of tokens that are not scored: all but the first one of a word, and the words of the context.
NOT_LABELED = -1
_SPECIAL_TOKENS = 2  # [CLS] and [SEP]


class Span(NamedTuple):
    """The words of a row, as indices of all words of a file.

    Attributes:
      example: index of the sentence.
      first, last: its labeled words; `last` is the word after them.
      begin, end: all its words, with the context.
    """

    example: int
    first: int
    last: int
    begin: int
    end: int


def make_rows(
    sentences: Sequence[Sentence],
    labels: Sequence[Sequence[int]],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    document_context: bool,
) -> dict[str, tf.RaggedTensor | np.ndarray]:
    """Cuts sentences into rows, each word labeled in exactly one of them.

    Args:
      sentences: of a file, in its order.
      labels: ids of the labels of each sentence's words.
      tokenizer: cuts words into tokens.
      max_seq_length: S.
      document_context: whether neighboring sentences of the document fill the rows.

    Returns:
      `tokens`, int32 [N, (tokens)], without [CLS] and [SEP]; `token_labels`, int32 of the same shape, `NOT_LABELED` on
      tokens without a label; `example_ids`, int64 [N], ascending. The rows of a sentence are in the order of its words.
    """
    room = max_seq_length - _SPECIAL_TOKENS
    words = _word_tokens(sentences, tokenizer, room)
    offsets = np.concatenate([[0], np.cumsum([len(tokens) for tokens in words])])
    flat = np.concatenate(words).astype(np.int32)
    flat_labels = np.full(len(flat), NOT_LABELED, np.int32)
    flat_labels[offsets[:-1]] = np.concatenate([np.asarray(found, np.int32) for found in labels])
    spans = list(spans_of(sentences, offsets, room, document_context))
    tokens, kept = [], []
    for span in spans:
        begin, end = offsets[span.begin], offsets[span.end]
        own = np.full(end - begin, NOT_LABELED, np.int32)
        first, last = offsets[span.first], offsets[span.last]
        own[first - begin : last - begin] = flat_labels[first:last]
        tokens.append(flat[begin:end])
        kept.append(own)
    lengths = [len(row) for row in tokens]
    columns = {"tokens": tokens, "token_labels": kept}
    ragged = {name: tf.RaggedTensor.from_row_lengths(np.concatenate(rows), lengths) for name, rows in columns.items()}
    return ragged | {"example_ids": np.array([span.example for span in spans], np.int64)}


def _word_tokens(sentences: Sequence[Sentence], tokenizer: BertTokenizer, room: int) -> list[np.ndarray]:
    """Returns the token ids of each word of a file.

    A word that the tokenizer removes, such as a control character, is [UNK], since it has a tag. One that does not fit
    into a row is cut.
    """
    numbers: dict[str, int] = {}
    order = [numbers.setdefault(word, len(numbers)) for sentence in sentences for word in sentence.words]
    ids = tokenize(list(numbers), tokenizer)
    unknown = np.array([tokenizer.unk_id], np.int32)
    values, splits = ids.values.numpy(), ids.row_splits.numpy()
    tokens = [values[a : min(b, a + room)] if b > a else unknown for a, b in itertools.pairwise(splits)]
    return [tokens[number] for number in order]


def spans_of(sentences: Sequence[Sentence], offsets: np.ndarray, room: int, document_context: bool) -> Iterator[Span]:
    """Yields the rows of all sentences.

    Args:
      sentences: of a file.
      offsets: int [words + 1], number of tokens before each word of the file.
      room: tokens that fit into a row.
      document_context: see `make_rows`.
    """
    bounds = np.concatenate([[0], np.cumsum([len(sentence.words) for sentence in sentences])])
    starts = [0, *(i for i, sentence in enumerate(sentences) if i and sentence.starts_document), len(sentences)]
    document = 0
    for example in range(len(sentences)):
        first, last = int(bounds[example]), int(bounds[example + 1])
        scope = first, last
        if document_context:
            document += example >= starts[document + 1]
            scope = int(bounds[starts[document]]), int(bounds[starts[document + 1]])
        for begin, end in _parts(first, last, offsets, room):
            yield Span(example, begin, end, *_with_context(begin, end, scope, offsets, room))


def _parts(first: int, last: int, offsets: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """Yields the words of a sentence: all of them, or if they do not fit into a row, as many as fill half of one.

    The other half is context, so that the words at a cut are read with words on both sides.
    """
    if offsets[last] - offsets[first] <= room:
        yield first, last
        return
    while first < last:
        end = int(np.searchsorted(offsets, offsets[first] + room // 2, side="right")) - 1
        end = min(max(end, first + 1), last)
        yield first, end
        first = end


def _with_context(first: int, last: int, scope: tuple[int, int], offsets: np.ndarray, room: int) -> tuple[int, int]:
    """Returns the words of a row: whole words of the scope on both sides; what one side lacks, the other one gets."""
    low, high = scope
    spare = room - (offsets[last] - offsets[first])
    behind = offsets[high] - offsets[last]
    before = min(offsets[first] - offsets[low], max(spare // 2, spare - behind))
    begin = int(np.searchsorted(offsets, offsets[first] - before, side="left"))
    spare -= offsets[first] - offsets[begin]
    end = int(np.searchsorted(offsets, offsets[last] + min(spare, behind), side="right")) - 1
    return begin, end
