"""Predicts blanks in sentences, and formats the predictions for people to read.

Paper: section 3.1, Task 1 (masked tokens); section 5.1 for the next token of a left-to-right model.

Letters: B rows, S sequence length, K blanks in a row, V vocabulary size.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.tokenization import CLS, MASK, SEP, BertTokenizer

NAME = "fill_mask.jsonl"
_GUESSES = 3
_MOST_BLANKS = 20
_MOST_SENTENCES = 50
# Limits of a log line: columns of text, columns before the first blank, and number of blanks.
_COLUMNS, _COLUMNS_BEFORE, _BLANKS_ON_LINE = 60, 25, 2
# A left-to-right model predicts every token, but only this number of tokens are shown.
_BLANKS_OF_ONE_DIRECTION = 8
# Offset from a blank to the position whose output predicts the blank.
_READ_FROM = {"bidi": 0, "ltr": -1, "rtl": 1}


@dataclasses.dataclass(frozen=True)
class Row:
    """A row with blanks.

    Attributes:
      input_ids: int32 [tokens], the model's input without padding.
      segment_ids: int32 [tokens], the segment of each token.
      blanks: positions of the blanks in the row, in ascending order.
      right_ids: the id of the right token of each blank; None if unknown.
    """

    input_ids: np.ndarray
    segment_ids: np.ndarray
    blanks: Sequence[int]
    right_ids: Sequence[int] | None


@dataclasses.dataclass(frozen=True)
class Blanks:
    """Rows with blanks, and the vocabulary of the rows (tokens by id)."""

    vocabulary: Sequence[str]
    rows: Sequence[Row]


def rows_of_batch(batch: Mapping[str, np.ndarray], directionality: str) -> list[Row]:
    """Converts a batch of pre-training data into rows; the predicted positions become blanks."""
    rows = []
    for index in range(len(batch["input_ids"])):
        tokens = int(batch["input_mask"][index].sum())
        used = np.flatnonzero(batch["masked_lm_weights"][index] > 0)
        most = _MOST_BLANKS if directionality == "bidi" else _BLANKS_OF_ONE_DIRECTION
        if len(used) > most:
            used = used[np.linspace(0, len(used) - 1, most).round().astype(int)]
        if not len(used):
            continue
        blanks = batch["masked_lm_positions"][index][used] - _READ_FROM[directionality]
        rows.append(
            Row(
                batch["input_ids"][index][:tokens],
                batch["segment_ids"][index][:tokens],
                blanks.tolist(),
                batch["masked_lm_ids"][index][used].tolist(),
            )
        )
    return rows


def rows_of_file(path: str, tokenizer: BertTokenizer, max_seq_length: int) -> list[Row]:
    """Returns the rows of a text file with one sentence per line and [MASK] for each token to predict.

    Raises:
      InputError: the file does not exist or has no lines or too many lines, or a line is too long, or
        has no [MASK] or too many of them.
    """
    rows = [
        row_of_line(line, f"{path}, line {number}", tokenizer, max_seq_length)
        for number, line in numbered_lines(path, "fill_mask_file")
    ]
    if not 1 <= len(rows) <= _MOST_SENTENCES:
        raise InputError(f"{path}: contains {len(rows)} sentences; give 1 to {_MOST_SENTENCES}, one per line")
    return rows


def numbered_lines(path: str, flag: str) -> list[tuple[int, str]]:
    """Returns the nonblank lines of a text file, and their line numbers, counted from 1.

    Raises:
      InputError: the file does not exist or is not UTF-8; the message names `flag`.
    """
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise InputError(f"--{flag}={path}: no such file")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            lines = file.read().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8; save it as UTF-8") from error
    return [(number, line.rstrip("\r")) for number, line in enumerate(lines, 1) if line.strip()]


def row_of_line(line: str, where: str, tokenizer: BertTokenizer, max_seq_length: int) -> Row:
    """Returns the row of a sentence with [MASK] for each token to predict.

    Raises:
      InputError: the sentence has no blanks or too many blanks, or is too long. The message starts with `where`.
    """
    parts = line.split(MASK)
    if not 2 <= len(parts) <= 1 + _MOST_BLANKS:
        raise InputError(f"{where}: contains {MASK} {len(parts) - 1} times; give 1 to {_MOST_BLANKS} blanks")
    ids = [tokenizer.cls_id]
    for part in tokenizer.encode(parts).to_list():
        ids += [*part, tokenizer.mask_id]
    ids[-1] = tokenizer.sep_id
    if len(ids) > max_seq_length:
        raise InputError(f"{where}: has {len(ids)} tokens, more than --max_seq_length={max_seq_length}; shorten it")
    input_ids = np.array(ids, np.int32)
    blanks = np.flatnonzero(input_ids == tokenizer.mask_id).tolist()
    return Row(input_ids, np.zeros_like(input_ids), blanks, None)


class FillMask:
    """Predicts a fixed set of blanks with the current weights of a model.

    Args:
      model: a model that was created in the scope of `strategy`.
      strategy: the distribution strategy.
      blanks: the blanks to predict.
      max_seq_length: S, the length to which rows are padded.
    """

    def __init__(self, model: BertPretrainer, strategy: tf.distribute.Strategy, blanks: Blanks, max_seq_length: int):
        self._vocabulary, self._rows = blanks.vocabulary, blanks.rows
        self._batch = _padded(blanks.rows, max_seq_length, _READ_FROM[model.config.directionality])

        @tf.autograph.experimental.do_not_convert
        def guess(batch):
            logits = model(batch)["masked_lm_logits"]  # [B, K, V]
            return tf.math.top_k(tf.nn.softmax(logits), _GUESSES)

        # Every replica predicts all rows, since the work is small.
        self._guess = tf.function(lambda batch: strategy.run(guess, args=(batch,)))
        self._strategy = strategy

    def look(self) -> list[dict]:
        """Predicts all blanks.

        Returns:
          One dictionary per row:
          `tokens`: the tokens that the model reads, as strings.
          `blanks`: one dictionary per blank:
            `at`: position of the blank in `tokens`.
            `right`: the right token; None if unknown.
            `guesses`: [token, probability] pairs in descending order of probability.
        """
        values, ids = self._strategy.experimental_local_results(self._guess(self._batch))[0]
        return [
            self._described(row, row_values, row_ids)
            for row, row_values, row_ids in zip(self._rows, values.numpy(), ids.numpy(), strict=True)
        ]

    def _described(self, row: Row, values: np.ndarray, ids: np.ndarray) -> dict:
        blanks = []
        for index, at in enumerate(row.blanks):
            guesses = zip(ids[index].tolist(), values[index].tolist(), strict=True)
            right = None if row.right_ids is None else self._token(row.right_ids[index])
            named = [[self._token(i), round(value, 4)] for i, value in guesses]
            blanks.append({"at": int(at), "right": right, "guesses": named})
        return {"tokens": [self._token(i) for i in row.input_ids.tolist()], "blanks": blanks}

    def _token(self, index: int) -> str:
        # The embedding table may have more rows than the vocabulary has tokens.
        return self._vocabulary[index] if index < len(self._vocabulary) else f"[id {index}]"


def _padded(rows: Sequence[Row], length: int, read_from: int) -> dict[str, tf.Tensor]:
    """Returns rows as one batch with columns int32 [B, S] and `masked_lm_positions` int32 [B, K], padded with 0."""
    most = max(1, *(len(row.blanks) for row in rows))
    batch = {name: np.zeros([len(rows), length], np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    batch["masked_lm_positions"] = np.zeros([len(rows), most], np.int32)
    for index, row in enumerate(rows):
        tokens = len(row.input_ids)
        batch["input_ids"][index, :tokens] = row.input_ids
        batch["input_mask"][index, :tokens] = 1
        batch["segment_ids"][index, :tokens] = row.segment_ids
        batch["masked_lm_positions"][index, : len(row.blanks)] = np.array(row.blanks, np.int32) + read_from
    return {name: tf.constant(value) for name, value in batch.items()}


def words(sample: Mapping) -> list[tuple[str, int | None]]:
    """Returns a sample as readable text, one piece per token.

    Returns:
      Pairs of a piece of text and the index of the blank; the index is None if the piece is not a blank. A piece
      includes the space before the token. At a blank, the piece is the token that the model reads, in brackets.
    """
    numbers = {blank["at"]: number for number, blank in enumerate(sample["blanks"])}
    result = []
    for at, token in enumerate(sample["tokens"]):
        if at not in numbers and (token == CLS or (token == SEP and at == len(sample["tokens"]) - 1)):
            continue
        text, space = token, " " if result else ""
        if at in numbers:
            text = token if token.startswith("[") else f"[{token}]"
        elif token == SEP:
            text = "/"
        elif token.startswith("##") and len(token) > 2:
            text, space = token[2:], ""
        result.append((space + text, numbers.get(at)))
    return result


def in_words(blank: Mapping) -> str:
    """Formats a blank as the right token and the guesses, for example "went: go 0.31, went 0.22, ran 0.08"."""
    guesses = ", ".join(f"{token} {probability:.2f}" for token, probability in blank["guesses"])
    return guesses if blank["right"] is None else f"{blank['right']}: {guesses}"


def line(sample: Mapping) -> str:
    """Formats the text around a sample's first blank, and the guesses for the first blanks, as one line."""
    tokens = words(sample)
    first = next(index for index, (_, number) in enumerate(tokens) if number is not None)
    before, after = ("".join(text for text, _ in part) for part in (tokens[:first], tokens[first:]))
    if len(before) > _COLUMNS_BEFORE:
        before = "..." + before[-_COLUMNS_BEFORE:]
    around = before + after
    if len(around) > _COLUMNS:
        around = around[:_COLUMNS] + "..."
    return f'"{around}"  ' + "; ".join(in_words(blank) for blank in sample["blanks"][:_BLANKS_ON_LINE])


def markdown(samples: Sequence[Mapping]) -> str:
    """Formats samples with all blanks as Markdown for TensorBoard."""
    parts = []
    for sample in samples:
        text = "".join(f" **{text.strip()}**" if number is not None else text for text, number in words(sample))
        parts.append("\n".join([text, "", *(f"* {in_words(blank)}" for blank in sample["blanks"])]))
    return "\n\n".join(parts)
