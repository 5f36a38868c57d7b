"""Converts texts to tokens, and locates each token in its text.

Paper: section 3 ("Input/Output Representations").

Letters: T tokens of all texts, including [CLS] and [SEP].
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.features.texts import Text
from bert_tf.text.characters import NOWHERE
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer

# The columns of `TokenRows` with an entry for each token.
TOKEN_COLUMNS = ("input_ids", "segment_ids", "words", "starts", "ends")


@dataclasses.dataclass(frozen=True)
class TokenRows:
    """The rows of N texts, one after another."""

    splits: np.ndarray  # int64 [N + 1], the start of each text's row, and the end of the last row
    # `input_ids`, `segment_ids`: int32 [T], inputs of the encoder
    input_ids: np.ndarray
    segment_ids: np.ndarray
    # int32 [T], the index of the token's word among the words of its segment; -1 on [CLS] and [SEP]. A segment is split
    # into words at white space and punctuation, as in the tokenizer.
    words: np.ndarray
    # `starts`, `ends`: int32 [T], the range of the token's characters in the input line or JSON field; the end is
    # exclusive. The values are -1 on [CLS] and [SEP].
    starts: np.ndarray
    ends: np.ndarray
    is_truncated: np.ndarray  # bool [N], whether the text was truncated

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N], the number of tokens of each row."""
        return np.diff(self.splits)

    @classmethod
    def empty(cls) -> "TokenRows":
        return cls(np.zeros(1, np.int64), *[np.zeros(0, np.int32)] * 5, is_truncated=np.zeros(0, bool))

    def __getitem__(self, texts: slice) -> "TokenRows":
        start, stop, _ = texts.indices(len(self.is_truncated))
        splits = self.splits[start : stop + 1]
        tokens = slice(int(splits[0]), int(splits[-1]))
        columns = {name: getattr(self, name)[tokens] for name in TOKEN_COLUMNS}
        return TokenRows(splits - splits[0], **columns, is_truncated=self.is_truncated[start:stop])


class RowMaker:
    """Makes rows from texts."""

    def __init__(self, tokenizer: BertTokenizer, max_seq_length: int):
        self._tokenizer, self._length = tokenizer, max_seq_length
        self._continues = np.array(tokenizer.rules.continues_word)
        signature = [tf.TensorSpec([None], tf.string)]
        self._encode = tf.function(tokenizer.encode_with_offsets, input_signature=signature, autograph=False)

    def __call__(self, texts: Sequence[Text]) -> TokenRows:
        """Returns the rows of at least one text, of the tokenizer's form, truncated as in training."""
        segments = [segment.encode() for text in texts for segment in text.segments]
        ids, starts, ends = self._encode(tf.constant(segments))
        splits = ids.row_splits.numpy()
        lengths = np.append(np.diff(splits), 0)  # an empty last segment replaces the absent second segment of a text
        counts = np.array([len(text.segments) for text in texts])
        first = np.cumsum(counts) - counts  # [N], each text's first segment
        second = np.where(counts > 1, first + 1, len(segments))
        shift = np.array([start for text in texts for start in text.starts])
        owner = np.repeat(np.arange(len(segments)), lengths[:-1])
        per_token = {
            "words": self._words(ids.values.numpy(), splits),
            "starts": starts.values.numpy() + shift[owner],
            "ends": ends.values.numpy() + shift[owner],
        }

        def packed(column: np.ndarray, **form: Any) -> dict[str, np.ndarray]:
            """Packs a column that has one value for each token, as token ids are packed."""
            values = tf.RaggedTensor.from_row_lengths(column.astype(np.int32), lengths, validate=False)
            segments = tf.gather(values, first), tf.gather(values, second)
            # `pack` arranges any integers; it returns them as "input_ids".
            rows = pack(*segments, max_seq_length=self._length, **self._tokenizer.row_form | form)
            return {name: values.numpy() for name, values in rows.items()}

        rows = packed(ids.values.numpy())
        nowhere = {"cls_id": NOWHERE, "sep_id": NOWHERE}
        is_token = rows["input_mask"] > 0  # [N, S]
        kept = is_token.sum(1)
        # [CLS] A [SEP], or [CLS] A [SEP] B [SEP]
        of_second = np.where(lengths[second] > 0, lengths[second] + self._tokenizer.rules.separators, 0)
        whole = 2 + lengths[first] + of_second
        return TokenRows(
            splits=np.append(0, np.cumsum(kept)),
            input_ids=rows["input_ids"][is_token],
            segment_ids=rows["segment_ids"][is_token],
            **{name: packed(column, **nowhere)["input_ids"][is_token] for name, column in per_token.items()},
            is_truncated=kept < whole,
        )

    def _words(self, ids: np.ndarray, splits: np.ndarray) -> np.ndarray:
        """Returns the index of each token's word in its segment."""
        begun = np.append(0, np.cumsum(~self._continues[ids]))
        return begun[1:] - 1 - np.repeat(begun[splits[:-1]], np.diff(splits))
