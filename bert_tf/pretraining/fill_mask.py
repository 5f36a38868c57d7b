"""Predicts blanks in sentences, and formats the predictions for people to read.

Paper: section 3.1, Task 1 (masked tokens); section 5.1 for the next token of a left-to-right model.

Letters: K blanks in a row.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.tokenization import MASK, BertTokenizer

NAME = "fill_mask.jsonl"
_GUESSES = 3
_MOST_BLANKS = 20
_MOST_SENTENCES = 50
# Limits of a log line: columns of text, columns before the first blank, and number of blanks.
_COLUMNS, _COLUMNS_BEFORE, _BLANKS_ON_LINE = 60, 25, 2
# Number of predicted positions of a row of pre-training data that are shown.
_SHOWN = 8
# Offset from a blank to the position whose output predicts the blank.
_READ_FROM = {"bidi": 0, "ltr": -1, "rtl": 1}


@dataclasses.dataclass(frozen=True)
class BlankRow:
    """A row with blanks."""

    input_ids: np.ndarray  # int32 [tokens], the model's input without padding
    segment_ids: np.ndarray  # int32 [tokens], the segment of each token
    blanks: Sequence[int]  # positions of the blanks in the row, in ascending order
    right_ids: Sequence[int] | None  # the id of the right token of each blank; None if unknown


def rows_of_batch(batch: Mapping[str, np.ndarray], directionality: str) -> list[BlankRow]:
    """Converts a batch of pre-training data into rows; the predicted positions become blanks."""
    rows = []
    for index in range(len(batch["input_ids"])):
        tokens = int(batch["input_mask"][index].sum())
        used = np.flatnonzero(batch["masked_lm_weights"][index] > 0)
        if len(used) > _SHOWN:
            used = used[np.linspace(0, len(used) - 1, _SHOWN).round().astype(int)]
        if not len(used):
            continue
        blanks = batch["masked_lm_positions"][index][used] - _READ_FROM[directionality]
        rows.append(
            BlankRow(
                batch["input_ids"][index][:tokens],
                batch["segment_ids"][index][:tokens],
                blanks.tolist(),
                batch["masked_lm_ids"][index][used].tolist(),
            )
        )
    return rows


def rows_of_file(path: str, tokenizer: BertTokenizer, max_seq_length: int) -> list[BlankRow]:
    """Returns the rows of a text file with one sentence per line and [MASK] for each token to predict."""
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise InputError(f"--fill_mask_file={path}: no such file")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            lines = file.read().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8; save it as UTF-8") from error
    rows = [
        row_of_line(line.rstrip("\r"), f"{path}, line {number}", tokenizer, max_seq_length)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not 1 <= len(rows) <= _MOST_SENTENCES:
        raise InputError(f"{path}: contains {len(rows)} sentences; give 1 to {_MOST_SENTENCES}, one per line")
    return rows


def row_of_line(line: str, where: str, tokenizer: BertTokenizer, max_seq_length: int) -> BlankRow:
    """Returns the row of a sentence with [MASK] for each token to predict."""
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
    return BlankRow(input_ids, np.zeros_like(input_ids), blanks, None)


class FillMask:
    """Predicts a fixed set of blanks with the current weights of a model.
    `model`: a model that was created in the scope of `strategy`.
    `max_seq_length`: S, the length to which rows are padded."""

    def __init__(
        self, model: BertPretrainer, strategy: tf.distribute.Strategy, rows: Sequence[BlankRow],
        vocabulary: Sequence[str], max_seq_length: int,
    ):  # fmt: skip
        self._strategy, self._rows, self._vocabulary = strategy, rows, vocabulary
        self._batch = _padded(rows, max_seq_length, _READ_FROM[model.config.directionality])

        @tf.autograph.experimental.do_not_convert
        def guess(batch):
            logits = model(batch)["masked_lm_logits"]  # [B, K, V]
            return tf.math.top_k(tf.nn.softmax(logits), _GUESSES)

        # Every replica predicts all rows, since the work is small.
        self._guess = tf.function(lambda batch: strategy.run(guess, args=(batch,)))

    def look(self) -> list[dict]:
        """Predicts all blanks. Returns one dictionary per row: `text`: what the model reads. Each blank has its number,
        as in "the [1] was [2: at]", and the token at the blank unless it is [MASK]. `blanks`: one dictionary per blank:
        `right`, the right token (None if unknown), and `guesses`, pairs [token, probability] in descending order of
        probability."""
        values, ids = self._strategy.experimental_local_results(self._guess(self._batch))[0]
        samples = []
        for row, row_values, row_ids in zip(self._rows, values.numpy(), ids.numpy(), strict=True):
            blanks = []
            for index in range(len(row.blanks)):
                names = map(self._token, row_ids[index].tolist())
                chances = (round(value, 4) for value in row_values[index].tolist())
                right = None if row.right_ids is None else self._token(row.right_ids[index])
                blanks.append({"right": right, "guesses": list(map(list, zip(names, chances, strict=True)))})
            samples.append({"text": self._text(row), "blanks": blanks})
        return samples

    def _text(self, row: BlankRow) -> str:
        numbers = {place: number for number, place in enumerate(row.blanks, 1)}
        pieces = []
        for place, token in enumerate(map(self._token, row.input_ids.tolist())):
            if number := numbers.get(place):
                token = f"[{number}]" if token == MASK else f"[{number}: {token}]"
            pieces.append(token)
        return re.sub(r"(?<!:) ##", "", " ".join(pieces))  # "[2: ##at]" keeps its marks

    def _token(self, index: int) -> str:
        # The embedding table may have more rows than the vocabulary has tokens.
        return self._vocabulary[index] if index < len(self._vocabulary) else f"[id {index}]"


def _padded(rows: Sequence[BlankRow], length: int, read_from: int) -> dict[str, tf.Tensor]:
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


def line(sample: Mapping, is_short: bool = False) -> str:
    """Formats a sample as one line: the text, and the right token and the guesses for each blank.
    `sample`: an element of the result of `FillMask.look`.
    `is_short`: whether to show only the text around the first blank, and only the first two blanks."""
    text, blanks = sample["text"], sample["blanks"]
    if is_short:
        start = max(0, text.index("[1") - _COLUMNS_BEFORE)
        text, blanks = text[start : start + _COLUMNS], blanks[:_BLANKS_ON_LINE]
    told = []
    for number, blank in enumerate(blanks, 1):
        guesses = ", ".join(f"{token} {probability:.2f}" for token, probability in blank["guesses"])
        told.append(f"[{number}] {guesses}" + (f" (right: {blank['right']})" if blank["right"] else ""))
    return f"{text}  {'; '.join(told)}"
