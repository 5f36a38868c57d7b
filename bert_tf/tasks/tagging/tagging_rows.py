"""Encodes tagged sentences as rows of tokens with a label for each token."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.task import tokenize
from bert_tf.tasks.tagging import word_rows
from bert_tf.tasks.tagging.conll_files import Sentence
from bert_tf.tokenization import BertTokenizer

# The label of the tokens that have no tag: all tokens of a word except the first, and all tokens of the context.
NOT_LABELED = -1
_SPECIAL_TOKENS = 2  # [CLS] and [SEP]


def make_rows(
    sentences: Sequence[Sentence],
    labels: Sequence[Sequence[int]],
    tokenizer: BertTokenizer,
    max_seq_length: int,
    document_context: bool,
) -> dict[str, tf.RaggedTensor | np.ndarray]:
    """Splits sentences into rows; each word is labeled in exactly one row.
    `max_seq_length`: maximum number of tokens in a row, including [CLS] and [SEP].
    `document_context`: whether neighboring sentences of the document fill the rows.
    Returns the columns. The rows of a sentence are in the order of its words.
    - `tokens`: int32 [N, (tokens)], token ids without [CLS] and [SEP].
    - `token_labels`: int32 [N, (tokens)], label ids; `NOT_LABELED` for tokens without a label.
    - `example_ids`: int64 [N], index of each row's example, ascending."""
    numbers: dict[str, int] = {}
    order = [numbers.setdefault(word, len(numbers)) for sentence in sentences for word in sentence.words]
    room = max_seq_length - _SPECIAL_TOKENS
    words = word_rows.word_tokens(tokenize(list(numbers), tokenizer), tokenizer.unk_id, room)
    splits = np.cumsum([0, *(len(sentence.words) for sentence in sentences)])
    documents = None
    if document_context:
        starts = [i for i, sentence in enumerate(sentences) if i and sentence.starts_document]
        documents = tf.constant([0, *starts, len(sentences)], tf.int64)
    rows = word_rows.make_rows(tf.gather(words, order), tf.constant(splits), room, documents)
    # The rows label all words in the order of the text; the first token of a row has the position 1.
    firsts = tf.gather(rows.tokens.row_starts(), rows.words.value_rowids()) + rows.words.values - 1
    token_labels = np.full(rows.tokens.values.shape, NOT_LABELED, np.int32)
    token_labels[firsts.numpy()] = np.concatenate(labels)
    return {
        "tokens": rows.tokens,
        "token_labels": rows.tokens.with_values(tf.constant(token_labels)),
        "example_ids": rows.sentences.numpy(),
    }
