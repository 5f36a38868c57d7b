"""Scores texts with a pre-trained model.

A masked LM masks one token at a time. A model of one direction predicts each token from the tokens before it.

Paper: section 3.1, Task 1 (the masked LM); section 5.1, "LTR". Pseudo-log-likelihoods: J. Salazar et al., "Masked
Language Model Scoring", ACL 2020. Masking the rest of the word too: C. Kauf and A. Ivanova, "A Better Way to Do Masked
Language Model Scoring", ACL 2023.

Letters: G guesses, Q masked positions.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.checkpoint_formats import names
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.pretraining.fill_mask import BlankRow
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.tokenization import BertTokenizer

# Rows are padded to one of these lengths, so that TensorFlow traces only a few graphs.
_LENGTHS = (16, 32, 64, 128, 256)
_LARGEST_EXPONENT = 700.0
# Number of positions of a model of one direction that have scores for all tokens of the vocabulary at the same time.
_POSITIONS_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class Text:
    """A text to score."""

    line: int  # number of the line, counted from 1 over all files
    text: str
    row: BlankRow  # the model's input; its blanks are the tokens to predict


@dataclasses.dataclass(frozen=True)
class TokenAnswers:
    """The model's predictions at the blanks of a text."""

    log_probabilities: np.ndarray  # log-probabilities of the right tokens, float32 [Q]
    # ids of the most probable tokens, int32 [Q, G]; None from a model of one direction
    guesses: np.ndarray | None = None
    # log-probabilities of the guesses, float32 [Q, G]; None from a model of one direction
    guess_log_probabilities: np.ndarray | None = None


_NEEDS = {
    "bidi": " and was trained without [MASK]; give a bidirectional model",
    "ltr": ", but only a left-to-right model gives the likelihood of a continuation; give one",
}


def require_language_model(contents: OpenCheckpoint, direction: str = "") -> BertConfig:
    """Returns the configuration of a checkpoint that predicts tokens.
    `direction`: the required directionality: "bidi" to fill in masked tokens, "ltr" for continuations; "" for any."""
    config = contents.require_config()
    if "masked_lm" not in names.heads_in(contents.tensors):
        raise InputError(
            f"{contents.source}: has no masked-LM head and cannot predict tokens; give a pre-trained checkpoint"
        )
    contents.check_pretrained(config)
    if direction not in ("", config.directionality):
        raise InputError(f"{contents.source}: has directionality={config.directionality}{_NEEDS[direction]}")
    return config


def _lengths_up_to(config: BertConfig) -> list[int]:
    """Returns the lengths of rows for a model, in ascending order; the last is its number of positions."""
    most = config.max_position_embeddings
    return [*(length for length in _LENGTHS if length < most), most]


class MaskedScorer:
    """Predicts masked tokens with a trained model, in batches of static shapes.
    `batch_size`: B, number of rows in a batch.
    `num_guesses`: G, number of guesses per masked position.
    `hide_rest_of_word`: whether to mask each token together with the later tokens of the same word.
    `prefix`: beginning of the names of likelihoods in the output."""

    prefix = "pseudo_"

    def __init__(
        self,
        model: BertPretrainer,
        tokenizer: BertTokenizer,
        batch_size: int = 64,
        num_guesses: int = 5,
        hide_rest_of_word: bool = False,
    ):
        self._model, self._mask_id, self._batch_size = model, tokenizer.mask_id, batch_size
        self._hides_rest = hide_rest_of_word
        self._continues = np.array(tokenizer.rules.continues_word)
        self._num_guesses = min(num_guesses, len(tokenizer.vocabulary))
        self._num_tokens, self._lengths = len(tokenizer.vocabulary), _lengths_up_to(model.config)
        self._step = tf.function(self._answer, autograph=False)

    def answers(self, rows: Sequence[BlankRow]) -> list[TokenAnswers]:
        """Predicts the blanks of each row. For each blank, the model reads a copy of the row with this blank masked."""
        queries = [(number, at) for number, row in enumerate(rows) for at in range(len(row.blanks))]
        lengths = np.array([len(rows[number].input_ids) for number, _ in queries])
        of_queries: list = [None] * len(queries)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            answers = self._step(*self._batch([(rows[queries[i][0]], queries[i][1]) for i in batch]))
            for i, *values in zip(batch, *(answer.numpy() for answer in answers), strict=False):
                of_queries[i] = values
        answers = iter(of_queries)
        return [TokenAnswers(*map(np.array, zip(*(next(answers) for _ in row.blanks), strict=True))) for row in rows]

    def _batch(self, queries: Sequence[tuple[BlankRow, int]]) -> tuple[tf.Tensor, ...]:
        """Returns the inputs of a step. A query is a row and the index of one of the row's blanks."""
        longest = max(len(row.input_ids) for row, _ in queries)
        length = next(length for length in self._lengths if length >= longest)
        ids, mask, segments = (np.zeros([self._batch_size, length], np.int32) for _ in range(3))
        positions, right = np.zeros([self._batch_size, 1], np.int32), np.zeros([self._batch_size], np.int32)
        for number, (row, at) in enumerate(queries):
            tokens, blank = len(row.input_ids), row.blanks[at]
            ids[number, :tokens], segments[number, :tokens] = row.input_ids, row.segment_ids
            mask[number, :tokens] = 1
            ids[number, blank : self._end_of_hidden(row, blank)] = self._mask_id
            positions[number], right[number] = blank, row.right_ids[at] if row.right_ids else 0
        return tuple(tf.constant(values) for values in (ids, mask, segments, positions, right))

    def _end_of_hidden(self, row: BlankRow, blank: int) -> int:
        end = blank + 1
        while self._hides_rest and self._continues[row.input_ids[end]]:  # ends at the row's [SEP] at the latest
            end += 1
        return end

    def _answer(self, ids, mask, segments, positions, right):
        encoder, head = self._model.encoder, self._model.masked_lm
        inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
        read = encoder(inputs, positions=positions)["sequence_output"]  # [B, 1, H]
        logits = head.logits(head(read, None, encoder.embeddings.word_embeddings))  # [B, V]
        log_probabilities = tf.nn.log_softmax(logits)
        # The embedding table may have more rows than the vocabulary has tokens.
        values, guesses = tf.math.top_k(log_probabilities[:, : self._num_tokens], self._num_guesses)
        return tf.gather(log_probabilities, right, batch_dims=1), guesses, values


class DirectedScorer:
    """Predicts each token of a text from the preceding tokens in the model's direction, in one pass over the text. The
    first predicted token is read from [CLS], or from [SEP] if the model reads from right to left. [CLS] and [SEP] are
    not predicted, as in pre-training.
    `model`: a trained model with the directionality "ltr" or "rtl"."""

    prefix = ""

    def __init__(self, model: BertPretrainer):
        self._model, self._lengths = model, _lengths_up_to(model.config)
        self._step = tf.function(self._log_probabilities, autograph=False)

    def answers(self, rows: Sequence[BlankRow]) -> list[TokenAnswers]:
        """Returns the log-probabilities of the blanks of each row. All tokens between [CLS] and [SEP] are blanks."""
        of_rows: dict[int, TokenAnswers] = {}
        for length in self._lengths:
            todo = [i for i, row in enumerate(rows) if i not in of_rows and len(row.input_ids) <= length]
            count = max(1, _POSITIONS_AT_ONCE // length)
            for batch in (todo[start : start + count] for start in range(0, len(todo), count)):
                ids, mask = np.zeros([count, length], np.int32), np.zeros([count, length], np.int32)
                for place, i in enumerate(batch):
                    tokens = len(rows[i].input_ids)
                    ids[place, :tokens], mask[place, :tokens] = rows[i].input_ids, 1
                values = self._step(tf.constant(ids), tf.constant(mask)).numpy()
                for place, i in enumerate(batch):
                    of_rows[i] = TokenAnswers(values[place, np.array(rows[i].blanks)])
        return [of_rows[i] for i in range(len(rows))]

    def _log_probabilities(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the log-probability of the token at each position, float32 [B, S]; 0 where nothing is predicted."""
        encoder, head = self._model.encoder, self._model.masked_lm
        states = encoder({"input_ids": ids, "input_mask": mask, "segment_ids": tf.zeros_like(ids)})["sequence_output"]
        is_ltr = self._model.config.directionality == "ltr"
        read, predicted = (states[:, :-1], ids[:, 1:]) if is_ltr else (states[:, 1:], ids[:, :-1])
        scores = head(read, None, encoder.embeddings.word_embeddings)  # [B (S - 1), V]
        losses, _ = head.losses(scores, tf.reshape(predicted, [-1]))
        return tf.pad(-tf.reshape(losses, tf.shape(predicted)), [[0, 0], [1, 0] if is_ltr else [0, 1]])


def likelihood_entry(text: Text, answers: TokenAnswers, tokenizer: BertTokenizer, prefix: str) -> dict:
    """Returns the output for a text and its tokens; `prefix` is "pseudo_" if each token was masked in turn, else ""."""
    values = answers.log_probabilities.tolist()
    tokens = [tokenizer.vocabulary[i] for i in text.row.right_ids]
    total = math.fsum(values)
    return {
        "line": text.line,
        "text": text.text,
        f"{prefix}log_likelihood": total,
        f"{prefix}perplexity": perplexity(total, len(values)),
        "tokens": [{"token": token, "log_probability": value} for token, value in zip(tokens, values, strict=True)],
    }


def perplexity(log_likelihood: float, num_tokens: int) -> float:
    """Returns the perplexity of a text per token, at most e^700."""
    return math.exp(min(-log_likelihood / num_tokens, _LARGEST_EXPONENT))


def guesses_entry(text: Text, answers: TokenAnswers, tokenizer: BertTokenizer) -> dict:
    blanks = [
        [
            {"token": tokenizer.vocabulary[i], "probability": math.exp(value)}
            for i, value in zip(ids, values, strict=True)
        ]
        for ids, values in zip(answers.guesses.tolist(), answers.guess_log_probabilities.tolist(), strict=True)
    ]
    return {"line": text.line, "text": text.text, "blanks": blanks}
