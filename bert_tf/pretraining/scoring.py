"""Scores texts with a pre-trained masked LM, one masked token at a time.

Paper: section 3.1, Task 1 (the masked LM); for pseudo-log-likelihoods J. Salazar et al., "Masked Language Model
Scoring", ACL 2020, and for hidden rests of words C. Kauf and A. Ivanova, "A Better Way to Do Masked Language Model
Scoring", ACL 2023.

Letters: B batch, S sequence length, V vocabulary size, G guesses.
"""

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import checkpoints, command_line
from bert_tf.checkpoint_formats import names
from bert_tf.checkpoint_formats.contents import Contents
from bert_tf.config import BertConfig
from bert_tf.distributed.strategies import silence_compilation_messages
from bert_tf.pretraining import fill_mask
from bert_tf.pretraining.fill_mask import Row
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.runs import checkpoint_tokenizer
from bert_tf.settings import ScoringSettings
from bert_tf.settings.scoring import FILL_MASK, LIKELIHOOD
from bert_tf.tokenization import MASK, UNK, BertTokenizer
from bert_tf.training import metrics
from tfrecords import writer
from tfrecords.errors import InputError
from tfrecords.progress_bar import ProgressBar

# A step's rows are padded to one of these lengths, each of which is traced once.
_LENGTHS = (16, 32, 64, 128, 256)
# Queries whose answers are in memory at a time.
_QUERIES_AT_ONCE = 4096
_LINES_AT_ONCE = 4096
_LARGEST_EXPONENT = 700.0
_SETTINGS_END = ".settings.json"


@dataclasses.dataclass(frozen=True)
class Text:
    """A text to score.

    Attributes:
      line: its number in the file, from 1.
      text: as it stands there.
      row: the model's input; its blanks are the tokens to predict.
    """

    line: int
    text: str
    row: Row


@dataclasses.dataclass(frozen=True)
class Answers:
    """What the model says of Q masked positions.

    Attributes:
      log_probabilities: float32 [Q], of the right tokens.
      guesses: int32 [Q, G], ids of the most probable tokens.
      guess_log_probabilities: float32 [Q, G].
    """

    log_probabilities: np.ndarray
    guesses: np.ndarray
    guess_log_probabilities: np.ndarray


class MaskedScorer:
    """Predicts masked tokens with a trained model, in batches of static shapes.

    Args:
      model: with trained weights, of attention to both sides.
      tokenizer: its tokenizer.
      batch_size: B.
      num_guesses: G.
      hide_rest_of_word: whether the later tokens of a masked token's word are masked with it.
    """

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
        self._continues = np.array([token.startswith("##") for token in tokenizer.vocabulary])
        self._num_guesses = min(num_guesses, len(tokenizer.vocabulary))
        self._num_tokens, most = len(tokenizer.vocabulary), model.config.max_position_embeddings
        self._lengths = [*(length for length in _LENGTHS if length < most), most]
        model.encoder.fused_inference = True
        self._step = tf.function(self._answer, autograph=False)

    def answers(self, rows: Sequence[Row]) -> list[Answers]:
        """Predicts the blanks of each row, each blank in a copy of the row of its own."""
        queries = [(number, at) for number, row in enumerate(rows) for at in range(len(row.blanks))]
        lengths = np.array([len(rows[number].input_ids) for number, _ in queries])
        found: list = [None] * len(queries)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            answers = self._step(*self._batch([(rows[queries[i][0]], queries[i][1]) for i in batch]))
            for i, *values in zip(batch, *(answer.numpy() for answer in answers), strict=False):
                found[i] = values
        answers = iter(found)
        return [Answers(*map(np.array, zip(*(next(answers) for _ in row.blanks), strict=True))) for row in rows]

    def _batch(self, queries: Sequence[tuple[Row, int]]) -> tuple[tf.Tensor, ...]:
        """Makes `input_ids`, `input_mask`, `segment_ids`, int32 [B, S], positions [B, 1] and right ids [B]."""
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

    def _end_of_hidden(self, row: Row, blank: int) -> int:
        end = blank + 1
        while self._hides_rest and self._continues[row.input_ids[end]]:  # [SEP] ends the row
            end += 1
        return end

    def _answer(self, ids, mask, segments, positions, right):
        encoder, head = self._model.encoder, self._model.masked_lm
        inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
        read = encoder(inputs, positions=positions)["sequence_output"]  # [B, 1, H]
        logits = head.logits(head(read, None, encoder.embeddings.word_embeddings))  # [B, V]
        log_probabilities = tf.nn.log_softmax(logits)
        # The table may have more rows than the vocabulary has tokens.
        values, guesses = tf.math.top_k(log_probabilities[:, : self._num_tokens], self._num_guesses)
        return tf.gather(log_probabilities, right, batch_dims=1), guesses, values


def score_file(settings: ScoringSettings) -> None:
    """Scores the texts of a file and writes one JSON object for each, atomically, and the settings beside them.

    Raises:
      InputError: the checkpoint is no pre-trained masked LM, or a text cannot be scored; before any is.
    """
    silence_compilation_messages()
    writer.check_outputs([settings.output_file, f"{settings.output_file}{_SETTINGS_END}"], [settings.input_file])
    model, tokenizer = _load(settings)
    texts = list(_texts(settings, tokenizer, model.config.max_position_embeddings))
    if not texts:
        raise InputError(f"--input_file={settings.input_file}: holds no text; write one a line")
    tf.io.gfile.makedirs(os.path.dirname(settings.output_file) or ".")
    checkpoints.initialize(model, settings.init_checkpoint)
    scorer = MaskedScorer(model, tokenizer, settings.batch_size, settings.num_guesses, settings.hide_rest_of_word)
    total = sum(len(text.row.blanks) for text in texts)
    bar = ProgressBar("scoring", total, "token")
    entry_of = _guesses_entry if settings.mode == FILL_MASK else _likelihood_entry
    log_likelihood = 0.0
    with writer.atomic_path(settings.output_file) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
        for part in _parts(texts):
            for text, answers in zip(part, scorer.answers([text.row for text in part]), strict=True):
                value = float(answers.log_probabilities.sum(dtype=np.float64))
                metrics.require_finite({f"the score of line {text.line}": value}, settings.init_checkpoint)
                file.write(json.dumps(entry_of(text, answers, tokenizer), ensure_ascii=False) + "\n")
                log_likelihood += value
            if bar.advance(sum(len(text.row.blanks) for text in part)):
                logging.info("scored %d of %d tokens, %s left", bar.done, total, bar.time_left)
    bar.close()
    if settings.mode == LIKELIHOOD:
        logging.info(
            "%d texts, %d tokens: pseudo-log-likelihood %.4f a token, pseudo-perplexity %.4g",
            len(texts), total, log_likelihood / total, _perplexity(log_likelihood, total),
        )  # fmt: skip
    writer.write_text(f"{settings.output_file}{_SETTINGS_END}", command_line.to_json(settings))
    logging.info("wrote %s", settings.output_file)


def _load(settings: ScoringSettings) -> tuple[BertPretrainer, BertTokenizer]:
    """Returns the model, still without its weights, and its tokenizer."""
    contents = checkpoints.open_checkpoint(settings.init_checkpoint, settings.bert_config_file)
    config = require_masked_lm(contents)
    known = checkpoint_tokenizer.find(contents, settings.init_checkpoint)
    given = (lower for lower in (settings.do_lower_case, known.casing.do_lower_case) if lower is not None)
    lower = next(given, True)
    if not settings.ignore_checkpoint_tokenizer:
        known.check(settings.do_lower_case, settings.vocab_file)
        known.check_rules(lower)
    vocab_file = settings.vocab_file or contents.vocab_file
    if not vocab_file:
        raise InputError(f"--vocab_file is missing, and the folder of {contents.source} has no vocab.txt; give it")
    tokenizer = BertTokenizer(vocab_file, lower)
    config.check_vocabulary(len(tokenizer.vocabulary), vocab_file, contents.config_file)
    if settings.max_seq_length:
        config.check_length(settings.max_seq_length, contents.config_file)
    return BertPretrainer(config), tokenizer


def require_masked_lm(contents: Contents) -> BertConfig:
    """Returns the configuration of a checkpoint that predicts masked tokens.

    Raises:
      InputError: it does not, or lacks a tensor.
    """
    config = contents.require_config()
    if "masked_lm" not in names.heads_in(contents.tensors):
        raise InputError(
            f"{contents.source}: has no masked-LM head, so it predicts no token; give a checkpoint of pre-training"
        )
    if config.directionality != "bidi":
        raise InputError(
            f"{contents.source}: has directionality={config.directionality} and was trained without [MASK]; give a "
            "model that attends to both sides"
        )
    contents.check_pretrained(config)
    return config


def _texts(settings: ScoringSettings, tokenizer: BertTokenizer, positions: int) -> Iterator[Text]:
    path, longest = settings.input_file, settings.max_seq_length or positions
    lines = fill_mask.numbered_lines(path, "input_file")
    if settings.mode == FILL_MASK:
        for number, line in lines:
            where = f"{path}, line {number}"
            yield Text(number, line, fill_mask.row_of_line(line, where, tokenizer, longest))
        return
    unknown, parts = 0, (lines[i : i + _LINES_AT_ONCE] for i in range(0, len(lines), _LINES_AT_ONCE))
    tokenized = (ids for part in parts for ids in tokenizer.encode([line for _, line in part]).to_list())
    for (number, line), tokens in zip(lines, tokenized, strict=True):
        _check_text(f"{path}, line {number}", line, len(tokens), longest)
        ids = np.array([tokenizer.cls_id, *tokens, tokenizer.sep_id], np.int32)
        unknown += tokens.count(tokenizer.vocabulary.index(UNK))
        yield Text(number, line, Row(ids, np.zeros_like(ids), range(1, len(ids) - 1), tokens))
    if unknown:
        logging.warning("%s: %d tokens are %s, whose scores say nothing of the words there", path, unknown, UNK)


def _check_text(where: str, line: str, num_tokens: int, longest: int) -> None:
    if MASK in line:
        raise InputError(f"{where}: holds {MASK}; give --mode={FILL_MASK} to fill it in, or write the word")
    if not num_tokens:
        raise InputError(f"{where}: has no token; remove the line")
    if num_tokens + 2 > longest:
        raise InputError(f"{where}: has {num_tokens + 2} tokens, more than {longest}; split the text")


def _parts(texts: Sequence[Text]) -> Iterator[list[Text]]:
    """Yields the texts in parts of limited work."""
    part, count = [], 0
    for text in texts:
        part.append(text)
        count += len(text.row.blanks)
        if count >= _QUERIES_AT_ONCE:
            yield part
            part, count = [], 0
    if part:
        yield part


def _likelihood_entry(text: Text, answers: Answers, tokenizer: BertTokenizer) -> dict:
    values = answers.log_probabilities.tolist()
    tokens = [tokenizer.vocabulary[i] for i in text.row.right_ids]
    total = math.fsum(values)
    return {
        "line": text.line,
        "text": text.text,
        "pseudo_log_likelihood": total,
        "pseudo_perplexity": _perplexity(total, len(values)),
        "tokens": [{"token": token, "log_probability": value} for token, value in zip(tokens, values, strict=True)],
    }


def _perplexity(log_likelihood: float, num_tokens: int) -> float:
    return math.exp(min(-log_likelihood / num_tokens, _LARGEST_EXPONENT))


def _guesses_entry(text: Text, answers: Answers, tokenizer: BertTokenizer) -> dict:
    blanks = [
        [
            {"token": tokenizer.vocabulary[i], "probability": math.exp(value)}
            for i, value in zip(ids, values, strict=True)
        ]
        for ids, values in zip(answers.guesses.tolist(), answers.guess_log_probabilities.tolist(), strict=True)
    ]
    return {"line": text.line, "text": text.text, "blanks": blanks}
