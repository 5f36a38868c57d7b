"""Served similarities of two texts. Letters: B batch, S sequence length, H hidden."""

import tensorflow as tf
from bert_tf.tasks.similarity.similarity_task import cosine

from bert_tf.text.packing import pack
from export.kinds.base import ServedTask


class ServedSimilarity(ServedTask):
    """Inputs: `text_a` and `text_b`. Output: `similarity`, float32 [B]."""

    def inputs(self):
        return {name: tf.TensorSpec([None], tf.string) for name in ("text_a", "text_b")}

    def answer(self, text_a, text_b):
        return {"similarity": cosine(self._vectors(text_a), self._vectors(text_b))}

    def answer_tokens(self, input_ids, input_mask, segment_ids):
        inputs = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        return {"vector": self._model(inputs)["logits"]}

    def _vectors(self, texts):
        ids = {"cls_id": self.tokenizer.cls_id, "sep_id": self.tokenizer.sep_id}
        rows = pack(self.tokenizer.encode(texts), None, max_seq_length=self._description.max_seq_length, **ids)
        return self._model(rows)["logits"]


KINDS = {"similarity": ServedSimilarity}
