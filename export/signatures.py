"""What a served model answers: from raw strings to answers, the tokenizer in the graph.

Letters: B batch, S sequence length, C classes.
"""

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.finetuning.classifier import BertClassifier
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer


@dataclasses.dataclass(frozen=True)
class ClassifierDescription:
    """What `run_classifier` wrote about its task; see `classifier.json`.

    Attributes:
      task_name: as trained.
      labels: in the order of their ids; empty for a regression.
      has_pairs: whether there are two texts.
      do_lower_case: how the tokenizer was used.
      max_seq_length: S of training.
    """

    task_name: str
    labels: list[str]
    has_pairs: bool
    do_lower_case: bool
    max_seq_length: int


class ServedClassifier(tf.Module):
    """A classifier with its tokenizer, taking strings.

    Args:
      model: with trained weights.
      tokenizer: the one it was trained with.
      description: of its task.
      assets: files to carry along, by name.
    """

    def __init__(
        self,
        model: BertClassifier,
        tokenizer: BertTokenizer,
        description: ClassifierDescription,
        assets: Mapping[str, str],
    ):
        super().__init__()
        self.tokenizer = tokenizer
        # the weights are tracked, the Keras model is not: it would bring a function for every layer
        self.weights = model.variables
        self._classify = lambda inputs: model(inputs, training=False)["logits"]
        self.assets = {name: tf.saved_model.Asset(path) for name, path in assets.items()}
        self._description = description
        self._labels = tf.constant(description.labels, tf.string)

    def serving_default(self) -> tf.types.experimental.ConcreteFunction:
        """The signature: `text_a` (and `text_b` for pairs), string [B], to the answers of `answer`."""
        texts = ("text_a", "text_b") if self._description.has_pairs else ("text_a",)
        specs = [tf.TensorSpec([None], tf.string, name=name) for name in texts]
        return tf.function(self.answer, input_signature=specs).get_concrete_function()

    def answer(self, text_a: tf.Tensor, text_b: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Classifies raw texts.

        Args:
          text_a: string [B].
          text_b: string [B]; None for single-text tasks.

        Returns:
          `probabilities` float32 [B, C] and `label` string [B]; for a regression `score` float32 [B].
        """
        packed = pack(
            self.tokenizer.encode(text_a),
            None if text_b is None else self.tokenizer.encode(text_b),
            max_seq_length=self._description.max_seq_length,
            cls_id=self.tokenizer.cls_id,
            sep_id=self.tokenizer.sep_id,
        )
        # columns that are padding in every row change nothing but the time it takes
        longest = tf.maximum(tf.reduce_max(tf.reduce_sum(packed["input_mask"], axis=1)), 1)  # 1: of no row
        inputs = {name: values[:, :longest] for name, values in packed.items()}
        logits = self._classify(inputs)  # [B, C]
        if not self._description.labels:
            return {"score": logits[:, 0]}
        return {
            "probabilities": tf.nn.softmax(logits),
            "label": tf.gather(self._labels, tf.argmax(logits, axis=-1)),
        }
