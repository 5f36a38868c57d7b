"""What a served model answers: from raw strings to answers, the tokenizer in the graph.

`KINDS` maps the kind of a task to its served model.

Letters: B batch, S sequence length, C classes.
"""

import abc
import functools
from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras as keras

from bert_tf.config import BertConfig
from bert_tf.finetuning.description import TaskDescription
from bert_tf.finetuning.model import FineTunedBert
from bert_tf.finetuning.tasks import classification, multi_label
from bert_tf.finetuning.tasks.reading import Reading
from bert_tf.tokenization import BertTokenizer


class ServedModel(tf.Module, abc.ABC):
    """A fine-tuned model with its tokenizer, from strings to answers.

    Args:
      model: with trained weights.
      tokenizer: the one it was trained with.
      description: of its task.
      assets: files to carry along, by name.
    """

    def __init__(
        self, model: FineTunedBert, tokenizer: BertTokenizer, description: TaskDescription, assets: Mapping[str, str]
    ):
        super().__init__()
        self.tokenizer = tokenizer
        # The weights are tracked, the Keras model is not: it would add a function for every layer.
        self.weights = model.variables
        self._model = lambda inputs: model(inputs, training=False)["logits"]
        self.assets = {name: tf.saved_model.Asset(path) for name, path in assets.items()}
        self._description = description

    @staticmethod
    @abc.abstractmethod
    def head(description: TaskDescription) -> Callable[[BertConfig], keras.layers.Layer]:
        """Returns a function that makes the head of the task, for `FineTunedBert`."""

    @staticmethod
    def completed(description: TaskDescription, folder: str, step: int) -> TaskDescription:
        """Adds what the answers need from a run's folder for its checkpoint of a step; nothing by default."""
        del folder, step
        return description

    @abc.abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Returns the names of the inputs, string [B] each."""

    @abc.abstractmethod
    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers a batch of raw strings, given by the names of `inputs`."""

    def serving_default(self) -> tf.types.experimental.ConcreteFunction:
        """Returns the signature from `inputs` to the answers of `answer`."""
        specs = {name: tf.TensorSpec([None], tf.string, name=name) for name in self.inputs()}
        return tf.function(self.answer).get_concrete_function(**specs)


class _ServedClassification(ServedModel):
    """Inputs: `text_a` and, for pairs, `text_b`."""

    @staticmethod
    def head(description: TaskDescription) -> Callable[[BertConfig], keras.layers.Layer]:
        """See `ServedModel`."""
        pooling = Reading.of_parameters(description.parameters).pooling
        return functools.partial(classification.make_head, description.labels, pooling=pooling)

    def inputs(self) -> tuple[str, ...]:
        """See `ServedModel`."""
        return ("text_a", "text_b") if self._description.parameters["has_pairs"] else ("text_a",)

    def logits(self, texts: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Computes logits, float32 [B, C], from `text_a` and, for pairs, `text_b`, string [B]."""
        columns = {name.replace("text", "segment"): text for name, text in texts.items()}
        reading = Reading.of_parameters(self._description.parameters)
        return reading.logits(columns, self.tokenizer, self._description.max_seq_length, self._model)


class ServedClassifier(_ServedClassification):
    """Classes: see `answer`."""

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classifies texts.

        Returns:
          `probabilities` float32 [B, C] and `label` string [B].
        """
        logits = self.logits(texts)
        labels = tf.constant(self._description.labels, tf.string)
        return {
            "probabilities": tf.nn.softmax(logits),
            "label": tf.gather(labels, tf.argmax(logits, axis=-1)),
        }


class ServedRegression(_ServedClassification):
    """Scores: see `answer`."""

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores texts.

        Returns:
          `score` float32 [B], in the range of the training data.
        """
        scale = self._description.parameters
        return {"score": self.logits(texts)[:, 0] * scale.get("deviation", 1.0) + scale.get("mean", 0.0)}


class ServedMultiLabel(_ServedClassification):
    """Any number of labels: see `answer`. `assets/labels.txt` names the C labels in their order."""

    @staticmethod
    def completed(description: TaskDescription, folder: str, step: int) -> TaskDescription:
        """Adds the thresholds of the run."""
        return multi_label.with_thresholds(description, folder, step)

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decides on each label.

        Returns:
          `probabilities` float32 [B, C]; `predicted` bool [B, C], whether a probability is above its label's threshold.
        """
        probabilities = tf.sigmoid(self.logits(texts))
        thresholds = tf.constant(self._description.parameters["thresholds"], tf.float32)
        return {"probabilities": probabilities, "predicted": probabilities > thresholds}


KINDS: dict[str, type[ServedModel]] = {
    classification.CLASSIFICATION: ServedClassifier,
    classification.REGRESSION: ServedRegression,
    multi_label.MULTI_LABEL: ServedMultiLabel,
}
