"""Served predictions of masked tokens, from a pre-trained model without a task.

Paper: section 3.1, Task 1.

Letters: M maximum number of masks in a row, K predicted tokens per mask, N rows that the model computes at once.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras as keras

from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig
from bert_tf.pretraining import scoring
from bert_tf.pretraining.objective import BertPretrainer
from bert_tf.text.characters import NOWHERE
from bert_tf.text.tokenizer_rules import WORD_START
from bert_tf.tokenization import MASK
from export.kinds import row_groups
from export.kinds.base import ServedCheckpoint
from export.settings import ExportSettings

FILL_MASK = "fill_mask"
# Maximum number of masks per text. The limit bounds memory, because each mask has a score for every token of the
# vocabulary.
_MOST_MASKS = 20
# Number of tokens that the model computes at once, see `row_groups`. If rows of 22 tokens have 20 masks, and the
# vocabulary has 30,000 tokens, the scores take 110 MB.
_TOKENS_OF_A_PART = 1024
_SAMPLES = (
    "The capital of France is [MASK].",
    "She sold her [MASK] in the city and moved to the [MASK].",
    "How long does it [MASK] to get from here to the station?",
    "It was not a bad film, but the [MASK] is better.",
)


class ServedFillMask(ServedCheckpoint):
    """Input: `text`, which contains the tokenizer's mask token for each token to predict. Outputs: see
    `answer`."""

    flags = ("top_k", "max_seq_length")

    @staticmethod
    def parameters(settings: ExportSettings, contents: OpenCheckpoint) -> dict[str, Any]:
        config = scoring.require_language_model(contents, "bidi")
        length = settings.max_seq_length or config.max_position_embeddings
        config.check_length(length, contents.config_file)
        return {"top_k": settings.top_k, "max_seq_length": length}

    @staticmethod
    def make_model(config: BertConfig, parameters: Mapping[str, Any]) -> keras.Model:
        del parameters
        return _MaskedLm(config)

    def samples(self) -> list[dict[str, Any]]:
        return [{"text": text.replace(MASK, self._mask)} for text in _SAMPLES]

    @property
    def _mask(self) -> str:
        return self.tokenizer.vocabulary[self.tokenizer.mask_id]

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predicts the masked tokens of texts, string [B]. All masks of a text are predicted at the same time. Only the
        first 20 masks of a text are predicted, and only masks within the first S tokens. Returns `filled`: string [B,
        M, K], the text in which token k replaces mask m, and the most probable tokens replace the other masks; "" on
        padding. Masks that are not predicted stay in the text. All other outputs: see `answer_tokens`."""
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="ignore")
        between = tf.strings.split(text, self._mask)  # [B, (masks + 1)]
        answers = self.answer_tokens(self._rows_around(between))
        tokens = answers["tokens"]
        if self.tokenizer.rules.unigram:  # written as WordPiece writes tokens
            begins_word = tf.strings.regex_full_match(tokens, f"{WORD_START}.*")
            tokens = tf.where(
                begins_word, tf.strings.regex_replace(tokens, f"^{WORD_START}", ""), tf.strings.join(["##", tokens])
            )
        return answers | {"filled": _filled(between, tokens, answers["num_masks"], self._mask)}

    def answer_tokens(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Predicts the masked tokens of rows, int32 [B, S].
        Returns:
        `tokens`: string [B, M, K], the most probable token first; "" on padding.
        `scores`: float32 [B, M, K], the probabilities of the tokens; 0 on padding.
        `positions`: int32 [B, M], the positions of the masks in the row; -1 on padding.
        `num_masks`: int32 [B], the number of predicted masks."""
        input_ids = inputs["input_ids"]
        is_mask = (input_ids == self.tokenizer.mask_id) & (inputs["input_mask"] > 0)
        columns = tf.zeros_like(input_ids) + tf.range(tf.shape(input_ids)[1])
        places = tf.ragged.boolean_mask(columns, is_mask)[:, :_MOST_MASKS]  # [B, (masks)]
        both = row_groups.compute(self._likeliest, inputs | {"positions": places.to_tensor()}, _TOKENS_OF_A_PART)
        values, ids = both[:, 0], tf.bitcast(both[:, 1], tf.int32)  # [B, M, K]
        is_there = tf.sequence_mask(places.row_lengths(), tf.shape(ids)[1])[..., tf.newaxis]  # [B, M, 1]
        return {
            "tokens": tf.where(is_there, tf.gather(self.tokenizer.vocabulary, ids), ""),
            "scores": tf.where(is_there, values, 0.0),
            "positions": places.to_tensor(NOWHERE),
            "num_masks": tf.cast(places.row_lengths(), tf.int32),
        }

    def _likeliest(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Finds the most probable tokens at each mask. Returns float32 [N, 2, M, K]: the probabilities, and the token
        ids, whose int32 bits are stored as float32."""
        # The embedding table may have more rows than the vocabulary has tokens.
        size = len(self.tokenizer.vocabulary)
        probabilities = tf.nn.softmax(self._model(inputs)["logits"])
        values, ids = tf.math.top_k(probabilities[..., :size], min(self._description.parameters["top_k"], size))
        return tf.stack([values, tf.bitcast(ids, tf.float32)], 1)

    def _rows_around(self, between: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """Packs texts into rows. `between`, string [B, (masks + 1)], contains the parts of each text between masks."""
        ids = self.tokenizer.encode(between.values)
        mask = tf.fill([ids.nrows(), 1], self.tokenizer.mask_id)
        ids = tf.concat([ids, mask], 1)  # a mask after each part; below, `[:, :-1]` removes each text's last mask
        splits = tf.gather(ids.row_splits, between.row_splits)
        ids = tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False)[:, :-1]
        return self.rows(ids)


class _MaskedLm(BertPretrainer):
    """A pre-trained model that predicts only the masked tokens."""

    def call(self, inputs, training=False, seed=None):
        """Computes `logits`, float32 [B, M, V], at `positions`, int32 [B, M]; only for inference."""
        del training, seed
        positions = inputs["positions"]
        # The encoder computes its last layer only at `positions`.
        read = self.encoder(inputs, positions=positions)["sequence_output"]
        logits = self.masked_lm.logits(self.masked_lm(read, None, self.encoder.embeddings.word_embeddings))
        return {"logits": tf.reshape(logits, [*tf.unstack(tf.shape(positions)), self.config.vocab_size])}


def _filled(between: tf.RaggedTensor, tokens: tf.Tensor, counts: tf.Tensor, mask: str) -> tf.Tensor:
    """Replaces the masks of texts with predicted tokens; see `ServedFillMask.answer`."""
    most = tf.shape(tokens)[1]
    parts, rest = between[:, :most].to_tensor(shape=[None, None]), between[:, most:]
    parts = tf.pad(parts, [[0, 0], [0, most - tf.shape(parts)[1]]])  # [B, M]
    rest = tf.strings.reduce_join(rest, axis=1, separator=mask)  # [B]
    number = tf.range(most)
    is_filled = tf.sequence_mask(counts, most)
    has_mask = number < tf.cast(between.row_lengths()[:, tf.newaxis] - 1, tf.int32)
    whole = tf.where(is_filled[..., tf.newaxis], _glued(parts[..., tf.newaxis], tokens), "")  # [B, M, K]
    kept = tf.where(has_mask, tf.strings.join([parts, mask]), parts)
    best = tf.where(is_filled, _glued(parts, tokens[..., 0]), kept)  # [B, M]

    def joined(chosen: tf.Tensor) -> tf.Tensor:
        """Joins strings of `best`. Row m of `chosen`, bool [M, M], selects the strings for mask m. Returns string [B,
        M, 1]."""
        return tf.strings.reduce_join(tf.where(chosen, best[:, tf.newaxis], ""), -1)[..., tf.newaxis]

    before, after = joined(number < number[:, tf.newaxis]), joined(number > number[:, tf.newaxis])
    filled = before + whole + after + rest[:, tf.newaxis, tf.newaxis]
    return tf.where(is_filled[..., tf.newaxis], filled, "")


def _glued(parts: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """Joins each part of a text with the following token, without a space before a token that continues a word."""
    continues = tf.strings.regex_full_match(tokens, "##.+")
    rest = tf.strings.regex_replace(tokens, "^##(.)", r"\1")
    trimmed = tf.strings.regex_replace(parts, r"[\s\p{Z}]+$", "")
    return tf.strings.join([tf.where(continues, trimmed, parts), tf.where(continues, rest, tokens)])


KINDS: dict[str, type[ServedCheckpoint]] = {FILL_MASK: ServedFillMask}
