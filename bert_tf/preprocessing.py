"""A Keras layer that turns strings into the encoder's inputs, with the tokenizer inside.

Paper: section 3 ("Input/Output Representations"), Figure 2.

Letters: B rows of a batch, S tokens per row.
"""

import os
from collections.abc import Sequence

import tensorflow as tf
import tf_keras as keras

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.core.errors import InputError
from bert_tf.modeling.keras_versions import refuse_keras_3
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer


@keras.utils.register_keras_serializable("bert_tf")
class BertPreprocessor(keras.layers.Layer):
    """Turns texts, or pairs of texts, into rows [CLS] A [SEP] B [SEP].

    The layer works in functional and subclassed models, in `tf.data`, and in eager mode. A saved model contains the
    vocabulary, so it needs no file. To load the model, import this module first.

    Args:
      vocabulary: path of a vocabulary with one token per line; or a checkpoint in any supported format, whose
        vocabulary and casing are used; or the tokens in the order of their ids.
      sequence_length: number of tokens in a row, S.
      do_lower_case: whether to lower-case and strip accents; None for the checkpoint's casing, else True.

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        if sequence_length < 3:
            raise ValueError(f"sequence_length={sequence_length}: must be at least 3, for [CLS], a token and [SEP]")
        if isinstance(vocabulary, (str, os.PathLike)):
            vocabulary, do_lower_case = _of_path(os.fspath(vocabulary), do_lower_case)
        self.sequence_length = sequence_length
        # Keras would track the tokenizer's list of tokens.
        with tf.init_scope():
            tokenizer = BertTokenizer(vocabulary, do_lower_case is not False)
        object.__setattr__(self, "tokenizer", tokenizer)

    def call(self, texts):
        """Tokenizes and packs texts.

        Args:
          texts: string [B] or [B, 1]; or a list or tuple of two such tensors, for pairs of texts.

        Returns:
          `input_ids`, `input_mask` and `segment_ids`, int32 [B, S] each. A row that is too long loses tokens at the end
          of the longer text, as in google-research/bert.
        """
        refuse_keras_3(texts)
        parts = list(texts) if isinstance(texts, (list, tuple)) else [texts]
        if len(parts) > 2:
            raise ValueError(f"texts has {len(parts)} parts; give one tensor of strings, or a pair of two tensors")
        return self.pack([self.tokenize(part) for part in parts])

    def tokenize(self, texts) -> tf.RaggedTensor:
        """Returns the ids of the tokens of texts, RaggedTensor int32 [B, (tokens)], without [CLS] and [SEP]."""
        return self.tokenizer.encode(tf.reshape(tf.convert_to_tensor(texts, tf.string), [-1]))

    def pack(self, segments: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Packs the token ids of one or two texts per row; see `call`."""
        first, second = (*segments, None)[:2]
        ids = {"cls_id": self.tokenizer.cls_id, "sep_id": self.tokenizer.sep_id}
        return pack(first, second, max_seq_length=self.sequence_length, **ids)

    def get_config(self) -> dict:
        """Returns the constructor's arguments; the vocabulary is a list of tokens."""
        return {
            **super().get_config(),
            "vocabulary": list(self.tokenizer.vocabulary),
            "sequence_length": self.sequence_length,
            "do_lower_case": self.tokenizer.do_lower_case,
        }


def _of_path(path: str, do_lower_case: bool | None) -> tuple[str, bool | None]:
    if (
        tf.io.gfile.exists(path)
        and not tf.io.gfile.isdir(path)
        and not path.endswith((".index", ".safetensors", ".h5"))
    ):
        return path, do_lower_case
    found = checkpoint_tokenizer.find(checkpoints.open_checkpoint(path), path)
    if not found.vocab_file:
        raise InputError(f"{path}: the checkpoint has no vocabulary; give the path of a vocab.txt")
    found.check(do_lower_case, "")
    return found.vocab_file, found.casing.do_lower_case if do_lower_case is None else do_lower_case
