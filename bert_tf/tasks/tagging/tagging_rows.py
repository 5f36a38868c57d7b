"""Encodes tagged sentences as rows of tokens; splits long sentences, and adds neighboring sentences as context.

Paper: section 5.3. The first token of each word is labeled, and rows can be filled with context from the document.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.task import tokenize
from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.tokenization import BertTokenizer

# The label of the tokens that have no tag: all tokens of a word except the first, and all tokens of the context.
NOT_LABELED = -1
_SPECIAL_TOKENS = 2  # [CLS] and [SEP]


class Span(NamedTuple):
    """The words of a row. The indices of words count the words of the whole file, from 0.

    Attributes:
      example: index of the row's sentence.
      first, last: range of the row's labeled words; `last` is exclusive.
      begin, end: range of all words of the row, including the context; `end` is exclusive.
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
    """Splits sentences into rows; each word is labeled in exactly one row.

    Args:
      max_seq_length: maximum number of tokens in a row, including [CLS] and [SEP].
      document_context: whether neighboring sentences of the document fill the rows.

    Returns:
      The columns. The rows of a sentence are in the order of its words.

      - `tokens`: int32 [N, (tokens)], token ids without [CLS] and [SEP].
      - `token_labels`: int32 [N, (tokens)], label ids; `NOT_LABELED` for tokens without a label.
      - `example_ids`: int64 [N], index of each row's sentence, ascending.
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

    If the tokenizer removes a word, such as a control character, the word becomes [UNK], so that it gets a tag. A word
    that does not fit into a row is truncated.
    """
    numbers: dict[str, int] = {}
    order = [numbers.setdefault(word, len(numbers)) for sentence in sentences for word in sentence.words]
    ids = tokenize(list(numbers), tokenizer)
    unknown = np.array([tokenizer.unk_id], np.int32)
    values, splits = ids.values.numpy(), ids.row_splits.numpy()
    tokens = [values[a : min(b, a + room)] if b > a else unknown for a, b in itertools.pairwise(splits)]
    return [tokens[number] for number in order]


def spans_of(sentences: Sequence[Sentence], offsets: np.ndarray, room: int, document_context: bool) -> Iterator[Span]:
    """Yields a `Span` for each row, sentence by sentence.

    Args:
      offsets: int [words + 1], number of tokens before each word of the file; the last element is the number of all
        tokens.
      room: maximum number of tokens in a row, without [CLS] and [SEP].
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
    """Splits a sentence into ranges of words.

    If all words fit into a row, there is one range. Otherwise, each range fills half of a row. The other half of the
    row is for context, so that the model reads words on both sides of a place where the sentence is split.
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
    """Extends a range of words on both sides by whole words, but not beyond the range `scope`.

    Each side may fill half of the free space in the row. If one side has too few words for its half, the other side may
    fill the rest.
    """
    low, high = scope
    spare = room - (offsets[last] - offsets[first])
    behind = offsets[high] - offsets[last]
    before = min(offsets[first] - offsets[low], max(spare // 2, spare - behind))
    begin = int(np.searchsorted(offsets, offsets[first] - before, side="left"))
    spare -= offsets[first] - offsets[begin]
    end = int(np.searchsorted(offsets, offsets[last] + min(spare, behind), side="right")) - 1
    return begin, end
