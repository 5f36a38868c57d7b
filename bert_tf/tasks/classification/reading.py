"""Defines how a classifier reads texts: how texts longer than a row are handled, and which vector the head reads.

Paper: section 3.2; for long texts: C. Sun et al., "How to Fine-Tune BERT for Text Classification?", 2019; for pairs in
both orders: A. Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018, section 3.3.

Letters: B examples.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.resolution import Command
from bert_tf.finetuning.task import Encoded, Split
from bert_tf.text.packing import HEAD_TAIL, TRUNCATE, WINDOW, cut_windows, pack, without_common_padding
from bert_tf.tokenization import BertTokenizer


@dataclasses.dataclass(frozen=True)
class LongTextRule:
    """The resolved options for reading texts; the fields have the same names as in `ClassifierSettings`."""

    pooling: str = "cls"  # the vector that the head reads: "cls", "mean" or "max"; see `ClassificationHead`
    # the treatment of long texts: "truncate", "head_tail" or "window"; see `ClassifierSettings`
    long_text: str = TRUNCATE
    window_stride: int = 0
    pair_order: str = "given"  # "given" for one row per pair of texts, or "both" for one row in each order

    @classmethod
    def of_command(cls, command: Command) -> "LongTextRule":
        """Returns the options of a command. If a flag is left out, its value is the value of the run in `output_dir`,
        or else the default."""
        return cls(**command.of_model(*(field.name for field in dataclasses.fields(cls))))

    @classmethod
    def of_parameters(cls, parameters: Mapping[str, Any]) -> "LongTextRule":
        return cls(**{field.name: parameters.get(field.name, field.default) for field in dataclasses.fields(cls)})

    @property
    def parameters(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def has_windows(self) -> bool:
        """Whether the rows of an example are windows of a long text."""
        return self.long_text == WINDOW

    @property
    def has_both_orders(self) -> bool:
        """Whether the two rows of an example are the two orders of a pair of texts."""
        return self.pair_order == "both"

    @property
    def has_several_rows(self) -> bool:
        """Whether an example can have several rows."""
        return self.has_windows or self.has_both_orders

    def rows(
        self, columns: Encoded, max_seq_length: int, truncation_side: str = "right", separators: int = 1
    ) -> Encoded:
        """Splits examples into rows. Training and the served graph both use this function.
        `columns`: `segment_a` and, for pairs, `segment_b`, int32 [B, (tokens)]; any other columns have B rows.
        `max_seq_length`: sequence length, S.
        `truncation_side`, `separators`: see `TokenizerRules`.
        Returns the columns of N rows. If an example can have several rows, there are more columns:
        - `example_ids`: int64 [N], index of the row's example, ascending.
        - `row_shares`: float32 [N], 1 / (number of rows of the row's example).
        - `order_ids`: int32 [N], 0 for the given order of a pair, 1 for the other order; only with both orders."""
        if self.has_both_orders:
            return _in_both_orders(columns)
        if not self.has_windows:
            return dict(columns)
        rest = dict(columns)
        first, second = rest.pop("segment_a"), rest.pop("segment_b", None)
        options = {"stride": self.window_stride, "truncation_side": truncation_side, "separators": separators}
        a, b, examples = cut_windows(first, second, max_seq_length=max_seq_length, **options)
        counts = tf.math.bincount(tf.cast(examples, tf.int32), minlength=tf.cast(first.nrows(), tf.int32))
        cut = {name: tf.gather(column, examples) for name, column in rest.items()} | {"segment_a": a}
        if b is not None:
            cut["segment_b"] = b
        weights = 1.0 / tf.cast(tf.gather(counts, examples), tf.float32)
        return cut | {"example_ids": examples, "row_shares": weights}

    def model_inputs(self, columns: Encoded, tokenizer: BertTokenizer, max_seq_length: int) -> dict[str, tf.Tensor]:
        """Packs token ids into rows.
        `columns`: the columns that `rows` returns.
        `tokenizer`: provides the form of a row.
        `max_seq_length`: sequence length, S.
        Returns `input_ids`, `input_mask`, `segment_ids`, int32 [N, S]."""
        return pack(
            columns["segment_a"],
            columns.get("segment_b"),
            max_seq_length=max_seq_length,
            with_tail=self.long_text == HEAD_TAIL,
            **tokenizer.row_form,
        )

    def logits(
        self,
        texts: Mapping[str, tf.Tensor],
        tokenizer: BertTokenizer,
        max_seq_length: int,
        model: Callable[[Mapping[str, tf.Tensor]], tf.Tensor],
    ) -> tf.Tensor:
        """Computes the logits of texts in one graph. The computation is the same as in training and evaluation.
        `texts`: `segment_a` and, for pairs, `segment_b`, string [B].
        `max_seq_length`: sequence length, S.
        `model`: function that maps the inputs of N rows to logits, float32 [N, C].
        Returns logits, float32 [B, C]."""
        columns = {name: tokenizer.encode(text) for name, text in texts.items()}
        rows = self.rows(columns, max_seq_length, tokenizer.rules.truncation_side, tokenizer.rules.separators)
        inputs = without_common_padding(self.model_inputs(rows, tokenizer, max_seq_length))
        logits = model(inputs | {name: rows[name] for name in ("order_ids",) if name in rows})
        if not self.has_several_rows:
            return logits
        return tf.math.unsorted_segment_mean(logits, rows["example_ids"], tf.size(texts["segment_a"]))

    def by_example(self, split: Split, predictions: np.ndarray) -> tuple[Split, np.ndarray]:
        """Averages the predictions of the rows of each example. The two orders of a pair have equal predictions.
        `split`: a split of N rows.
        `predictions`: predictions of the rows, [N, C].
        Returns the split with only the first row of each example, and the mean predictions, with one row per example.
        If each example has one row, the result is the unchanged arguments."""
        if not self.has_several_rows:
            return split, predictions
        _, first, counts = np.unique(split.example_ids, return_index=True, return_counts=True)
        means = np.add.reduceat(predictions, first, axis=0) / counts[:, np.newaxis].astype(predictions.dtype)
        columns = {name: tf.gather(column, first) for name, column in split.columns.items()}
        return dataclasses.replace(split, columns=columns, example_ids=split.example_ids[first], lengths=None), means


def _in_both_orders(columns: Encoded) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Returns two consecutive rows for each pair of texts, one in each order; see `LongTextRule.rows`."""
    first, second = columns["segment_a"], columns["segment_b"]
    count = tf.cast(first.nrows(), tf.int32)
    examples = tf.repeat(tf.range(count), 2)
    orders = tf.tile([0, 1], [count])
    rows = {name: tf.gather(column, examples) for name, column in columns.items()}
    for name, texts in (("segment_a", [first, second]), ("segment_b", [second, first])):
        rows[name] = tf.gather(tf.concat(texts, axis=0), examples + orders * count)
    shares = tf.fill([2 * count], 0.5)
    return rows | {"example_ids": tf.cast(examples, tf.int64), "row_shares": shares, "order_ids": orders}


READ_AS_IN_THE_PAPER = LongTextRule()
