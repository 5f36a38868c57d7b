"""Served similarities of two texts. Letters: B batch, S sequence length, H hidden."""

import tensorflow as tf
from bert_tf.tasks.similarity.similarity_task import cosine

from export.kinds.base import ServedTask


class ServedSimilarity(ServedTask):
    """Inputs: `text_a` and `text_b`. Output: `similarity`, float32 [B]."""

    def inputs(self):
        return {name: tf.TensorSpec([None], tf.string) for name in ("text_a", "text_b")}

    def answer(self, text_a, text_b):
        return {"similarity": cosine(self._vectors(text_a), self._vectors(text_b))}

    def answer_tokens(self, inputs):
        return {"vector": self._model(inputs)["logits"]}

    def _vectors(self, texts):
        return self._model(self.rows(self.tokenizer.encode(texts)))["logits"]


KINDS = {"similarity": ServedSimilarity}
