"""A Keras layer that turns strings into the encoder's inputs, with the tokenizer inside.

Paper: section 3 ("Input/Output Representations"), Figure 2.
"""

import os
from collections.abc import Sequence

import tensorflow as tf
import tf_keras as keras

from bert_tf.modeling.keras_versions import refuse_keras_3
from bert_tf.text import tokenizer_rules
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer


@keras.utils.register_keras_serializable("bert_tf")
class BertPreprocessor(keras.layers.Layer):
    """Turns texts, or pairs of texts, into rows [CLS] A [SEP] B [SEP].

    The layer works in functional and subclassed models, in `tf.data`, and in eager mode. A saved model contains the
    vocabulary, so it needs no file. To load the model, import this module first.

    Args:
      vocabulary: path of a vocabulary with one token per line; or the path of a model of any supported format, whose
        tokenizer is used; or the tokens in the order of their ids.
      sequence_length: number of tokens in a row, S.
      do_lower_case: whether to lower-case text; see `BertTokenizer`.
      strip_accents: whether to strip accents; see `BertTokenizer`.
      added_tokens: if `vocabulary` is a list, the values of each `AddedToken`; saved models contain them.
      **kwargs: arguments of `keras.layers.Layer`; if `vocabulary` is a list, also the names in `tokenizer_rules.FORM`.

    Attributes:
      tokenizer: the `BertTokenizer`.

    Raises:
      ValueError: `sequence_length` is less than 3.
    """

    def __init__(
        self,
        vocabulary: str | Sequence[str],
        sequence_length: int = 128,
        do_lower_case: bool | None = None,
        strip_accents: bool | None = None,
        added_tokens: Sequence[Sequence] = (),
        **kwargs,
    ):
        form = {name: kwargs.pop(name) for name in tokenizer_rules.FORM if name in kwargs}
        super().__init__(**kwargs)
        if sequence_length < 3:
            raise ValueError(f"sequence_length={sequence_length}: must be at least 3, for [CLS], a token and [SEP]")
        if not isinstance(vocabulary, (str, os.PathLike)):
            vocabulary = tokenizer_rules.of_tokens(vocabulary, do_lower_case, strip_accents, added_tokens, **form)
        self.sequence_length = sequence_length
        # Keras would track the tokenizer's list of tokens.
        with tf.init_scope():
            tokenizer = BertTokenizer(vocabulary, do_lower_case, strip_accents)
        object.__setattr__(self, "tokenizer", tokenizer)

    def call(self, texts):
        """Tokenizes and packs texts.

        Args:
          texts: string [B] or [B, 1], or a list of B strings; or a tuple of two of these, for pairs of texts. Keras
            gives a list of two tensors if a model has two inputs; this list is a pair too. In `tf.data`, batch the
            dataset before the layer.

        Returns:
          `input_ids`, `input_mask` and `segment_ids`, int32 [B, S] each. A row that is too long loses tokens at the end
          of the longer text, as in google-research/bert, or at its beginning if the tokenizer's files say so.

        Raises:
          ValueError: a tuple does not have two parts, a tensor has several columns, or is a single text in a graph.
          tf.errors.InvalidArgumentError: a tensor of unknown shape has several columns.
        """
        refuse_keras_3(texts)
        is_list = isinstance(texts, list) and len(texts) > 0
        # In a graph, a list of two single texts would silently be two rows instead of a pair.
        if not tf.executing_eagerly() and any(tf.is_tensor(t) and t.shape.rank == 0 for t in tf.nest.flatten(texts)):
            raise ValueError(
                "texts contains a single text; give batches, for example with dataset.batch before the map"
            )
        is_pair = isinstance(texts, tuple) or (is_list and all(tf.is_tensor(t) and t.shape.rank != 0 for t in texts))
        parts = texts if is_pair else (texts,)
        if len(parts) > 2:
            raise ValueError(f"texts has {len(parts)} parts; give one tensor or list of strings, or a tuple of two")
        return self.pack([self.tokenize(part) for part in parts])

    def tokenize(self, texts) -> tf.RaggedTensor:
        """Returns the ids of the tokens of texts, RaggedTensor int32 [B, (tokens)], without [CLS] and [SEP]."""
        texts = tf.convert_to_tensor(texts, tf.string)
        if texts.shape.rank == 2 and texts.shape[1] not in (1, None):
            raise ValueError(
                f"texts has the shape {tuple(texts.shape)}; give a tuple of two tensors for pairs of texts"
            )
        flat = tf.reshape(texts, [-1])
        if texts.shape.rank is None or None in texts.shape[1:]:
            message = "texts has several columns; give a tuple of two tensors for pairs of texts"
            tf.debugging.assert_equal(tf.size(flat), tf.shape(texts)[0], message)
        return self.tokenizer.encode(flat)

    def pack(self, segments: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Packs the token ids of one or two texts per row; see `call`."""
        first, second = (*segments, None)[:2]
        return pack(first, second, max_seq_length=self.sequence_length, **self.tokenizer.row_form)

    def get_config(self) -> dict:
        """Returns the constructor's arguments; the vocabulary is a list of tokens."""
        return {
            **super().get_config(),
            "vocabulary": list(self.tokenizer.vocabulary),
            "sequence_length": self.sequence_length,
            "do_lower_case": self.tokenizer.do_lower_case,
            "strip_accents": self.tokenizer.strip_accents,
            "added_tokens": [list(token) for token in self.tokenizer.rules.added_tokens],
            **self.tokenizer.rules.form,
        }
