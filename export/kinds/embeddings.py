"""Served embedding vectors of texts and of tokens, from an encoder without a task.

Paper: section 5.3; for pooled vectors, N. Reimers and I. Gurevych, "Sentence-BERT", EMNLP 2019.

Letters: T tokens of the longest text, L layers that are read.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras as keras

from bert_tf.checkpoint_formats import sentence_transformers
from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig
from bert_tf.encoder_pair import make_encoder
from bert_tf.features import model as features
from bert_tf.features import pooling
from bert_tf.finetuning.description import TaskDescription
from bert_tf.modeling.heads import pool_tokens
from bert_tf.settings.features import VectorSettings
from bert_tf.tasks.embeddings.embedding_task import EMBEDDINGS
from bert_tf.tasks.embeddings.prompts import DEFAULT_POOLING
from bert_tf.text.characters import NOWHERE
from export.kinds import row_groups
from export.kinds.base import MoreSignatures, ServedCheckpoint
from export.settings import ExportSettings


class ServedEmbeddings(ServedCheckpoint):
    """Input: `text`. Output: one pooled vector per text, see `answer`. The signature `token_embeddings` has the same
    input, but returns one vector per token."""

    flags = ("layers", "pooling", "normalize", "dimensions", "max_seq_length")

    @staticmethod
    def drop_unused(model: keras.Model, description: TaskDescription) -> None:
        """Removes the layers above the highest layer that is read, and the pooler."""
        for encoder in model.encoder.encoders:
            encoder.pooler = lambda first, activation: first
            encoder.blocks = encoder.blocks[: max(description.parameters["layers"])]

    @staticmethod
    def parameters(settings: ExportSettings, contents: OpenCheckpoint) -> dict[str, Any]:
        is_stated = sentence_transformers.is_stated(contents.folder)
        vectors = VectorSettings(
            init_checkpoint=contents.source,
            layers=settings.layers,
            max_seq_length=settings.max_seq_length,
            sentence_vectors=is_stated,
            pooling=settings.pooling or (None if is_stated else DEFAULT_POOLING),
            normalize=settings.normalize,
            dimensions=settings.dimensions,
        )
        vectors, prompts = features.resolve(vectors), sentence_transformers.read_prompts(contents.folder)
        pooled = features.pooling_of(vectors, contents.folder)
        return {
            "layers": features.layer_indices(vectors, contents.require_config()),
            "pooling": vectors.pooling,
            "normalize": pooled.normalize,
            "cuts_first": pooled.cuts_first,
            "max_seq_length": vectors.max_seq_length,
            "dimensions": vectors.dimensions,
            "prompt": vectors.prompt,
            "prompts": {name: text for name, text in prompts.items() if text},
        }

    @staticmethod
    def make_model(config: BertConfig, parameters: Mapping[str, Any]) -> keras.Model:
        return _Layers(config, parameters["layers"])

    def more_signatures(self) -> MoreSignatures:
        """Returns the signature for token vectors, and one for each prompt, such as `query` and `document`."""
        prompts = self._description.parameters["prompts"]
        asked = {name: (functools.partial(self.prompted, text), self.inputs()) for name, text in prompts.items()}
        return {"token_embeddings": (self.token_embeddings, self.inputs()), **asked}

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the vectors of texts, string [B], with the default prompt. Returns `embedding`: float32 [B, H], or
        [B, L, H] if several layers are read. H may be `--dimensions`."""
        return self.prompted(self._description.parameters["prompt"], text)

    def prompted(self, prompt: str, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the vectors of texts with a prompt before each text; see `answer`."""
        texts = tf.strings.join([prompt, text]) if prompt else text
        rows = self.rows(self.tokenizer.encode(texts))
        return {"embedding": row_groups.compute(lambda part: self._pool(self._vectors(part), part["input_mask"]), rows)}

    def token_embeddings(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the vectors of the tokens of texts, string [B], including [CLS] and [SEP].
        Returns:
        `embeddings`: float32 [B, T, H], or [B, T, L, H] if several layers are read; 0 on padding.
        `tokens`: string [B, T]; "" on padding.
        `start`, `end`: int32 [B, T], the range of the token's characters in the text; `end` is exclusive; -1 on [CLS],
          [SEP] and padding.
        `num_tokens`: int32 [B], the number of tokens, including [CLS] and [SEP]."""
        ids, starts, ends = self.tokenizer.encode_with_offsets(text)
        inputs = self.rows(ids)
        is_token = inputs["input_mask"] > 0
        return {
            "embeddings": row_groups.compute(self._vectors, inputs),
            "tokens": tf.where(is_token, tf.gather(self.tokenizer.vocabulary, inputs["input_ids"]), ""),
            "start": self._laid(starts, is_token),
            "end": self._laid(ends, is_token),
            "num_tokens": tf.reduce_sum(inputs["input_mask"], 1),
        }

    def answer_tokens(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the vectors of rows, int32 [B, S].
        Returns:
        `embedding`: see `answer`.
        `token_embeddings`: float32 [B, S, H], or [B, S, L, H] if several layers are read; 0 on padding."""
        vectors = self._vectors(inputs)
        return {"embedding": self._pool(vectors, inputs["input_mask"]), "token_embeddings": vectors}

    def _laid(self, values: tf.RaggedTensor, is_token: tf.Tensor) -> tf.Tensor:
        """Aligns the values of tokens, [B, (tokens)], with the columns of the rows. Returns int32 with the shape of
        `is_token`; `NOWHERE` at [CLS], [SEP] and padding."""
        values = tf.cast(values, tf.int32).to_tensor(NOWHERE, shape=[None, self.length - 2])
        return tf.pad(values, [[0, 0], [1, 1]], constant_values=NOWHERE)[:, : tf.shape(is_token)[1]]

    def _vectors(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Computes the outputs of the layers, float32 [B, S, H] or [B, S, L, H]; 0 on padding."""
        vectors = self._model(inputs)["layers"]
        vectors = tf.squeeze(vectors, 2) if vectors.shape[2] == 1 else vectors
        mask = inputs["input_mask"]  # [B, S]
        mask = tf.reshape(mask, tf.concat([tf.shape(mask), [1] * (vectors.shape.rank - 2)], 0))
        return tf.where(mask > 0, vectors, 0.0)

    def _pool(self, vectors: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
        """Pools the token vectors of each row; returns float32 [B, H] or [B, L, H]."""
        parameters = self._description.parameters
        size = parameters["dimensions"]
        pooled = pool_tokens(vectors, input_mask, parameters["pooling"])
        pooled = pooled[..., :size] if parameters["cuts_first"] else pooled
        if parameters["normalize"]:
            pooled /= tf.maximum(tf.norm(pooled, axis=-1, keepdims=True), pooling.SMALLEST_NORM)
        return pooled[..., :size]


class _Layers(keras.Model):
    """An encoder that returns the outputs of selected layers; layer 0 is the embeddings."""

    def __init__(self, config: BertConfig, layers: Sequence[int], **options):
        super().__init__(**options)
        self.config, self._numbers = config, tuple(layers)
        self.encoder = make_encoder(config)

    def call(self, inputs, training=False, seed=None):
        """Computes `layers`, float32 [B, S, L, H], the outputs of the selected layers. Only for inference."""
        del training, seed
        return {"layers": features.stack_layers(self.encoder(inputs), self._numbers)}


KINDS: dict[str, type[ServedCheckpoint]] = {EMBEDDINGS: ServedEmbeddings}
