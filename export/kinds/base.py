"""The base classes of served models. A served model maps raw strings or tokens to answers.

Letters: N choices per example.
"""

import abc
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras as keras

from bert_tf.checkpoint_formats.contents import OpenCheckpoint
from bert_tf.config import BertConfig
from bert_tf.finetuning.description import TaskDescription
from bert_tf.text.packing import pack, without_common_padding
from bert_tf.tokenization import BertTokenizer
from export import weights
from export.settings import ExportSettings

# Maps the name of each additional signature to its function and the function's inputs.
MoreSignatures = dict[str, tuple[Callable[..., dict[str, tf.Tensor]], dict[str, tf.TensorSpec]]]
PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{name}" for name in ("predict", "classify", "regress"))
_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "She sold her house in the city and moved to the country.",
    "How long does it take to get from here to the station?",
    "It was not a bad film, but the book is better.",
)


class ServedModel(tf.Module, abc.ABC):
    """A model that maps strings to answers; the tokenizer is part of the graph. Each subclass gives one kind of answer.
    All outputs are dense tensors with stable names. Their first axis is the batch. An empty batch has empty answers.
    `model`: a model with trained weights and the inputs of `BertEncoder`.
    `description`: the task's description; for a checkpoint without a task, a description with the kind's parameters.
    `method`: TF Serving's method for the signature `examples`: `PREDICT`, `CLASSIFY` or `REGRESS`."""

    method = PREDICT
    flags: Sequence[str] = ()  # names of the settings in `OF_SOME_KINDS` that this kind reads

    def __init__(
        self, model: keras.Model, tokenizer: BertTokenizer, description: TaskDescription, assets: Mapping[str, str]
    ):
        super().__init__()
        self.tokenizer = tokenizer
        # Track the weights but not the Keras model, because tracking the model would save a function for every layer.
        self.weights = weights.variables_of(model)
        # All signatures call one function, so that the graph contains the model only once.
        traced = tf.function(functools.partial(model, training=False), autograph=False)
        self._model = lambda inputs: traced(inputs)
        self.assets = {name: tf.saved_model.Asset(path) for name, path in assets.items()}
        self._description = description

    @staticmethod
    def drop_unused(model: keras.Model, description: TaskDescription) -> None:
        """Removes layers that the answers do not need, so that the export does not have their weights. By default,
        removes nothing. Call this function before `weights.prepare`."""
        del model, description

    def inputs(self) -> dict[str, tf.TensorSpec]:
        """Returns the specs of the inputs of `answer`: string [None], or [None, None] for several texts per row. By
        default, the only input is `text`."""
        return {"text": tf.TensorSpec([None], tf.string)}

    @abc.abstractmethod
    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the answers to a batch of raw strings. The argument names are the keys of `inputs`."""

    @abc.abstractmethod
    def answer_tokens(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the answers to rows of tokens. If an answer needs the text, returns scores of the tokens instead.
        `inputs`: `input_ids`, `input_mask` and `segment_ids`, each with the shape and dtype of `token_spec`; S is
          dynamic."""

    def more_signatures(self) -> MoreSignatures:
        """Returns the additional signatures of this kind; none by default. All inputs are strings, as in `inputs`."""
        return {}

    def token_spec(self) -> tf.TensorSpec:
        """Returns the spec of each input of `answer_tokens`: int32 [B, S], or int32 [B, N, S] for multiple choice."""
        return tf.TensorSpec([None, None], tf.int32)

    @property
    def length(self) -> int:
        """Maximum number of tokens in a row, S."""
        return self._description.max_seq_length

    def rows(self, segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None = None) -> dict[str, tf.Tensor]:
        """Packs token ids, int32 [B, (tokens)], into rows, and drops the columns that are padding in every row."""
        rows = pack(segment_a, segment_b, max_seq_length=self.length, **self.tokenizer.row_form)
        return without_common_padding(rows)

    def example_outputs(self, answers: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Converts the answers of `answer` to the outputs of the signature `examples`. With the method `CLASSIFY`, the
        outputs are `classes`, string [B, C], and `scores`, float32 [B, C]. With `REGRESS`, the output is `outputs`,
        float32 [B]. With `PREDICT`, the outputs are the answers."""
        return dict(answers)

    def samples(self) -> list[dict[str, Any]]:
        """Returns inputs for warm-up requests, one dict per row: fixed texts, the shortest first. The lengths differ,
        because a server compiles code and allocates memory for each new shape."""
        return [self._sample(number) for number in range(2 * len(_SENTENCES))]

    def _sample(self, number: int) -> dict[str, Any]:
        """Returns a row with one text for each input [B], and N texts, or 2, for each input [B, N]."""
        sentences = itertools.islice(itertools.cycle(_SENTENCES), number, None)
        texts = (" ".join([sentence] * 2 ** (number // 2)) for sentence in sentences)
        counts = {name: 0 if spec.shape.rank == 1 else spec.shape[1] or 2 for name, spec in self.inputs().items()}
        return {name: list(itertools.islice(texts, count)) if count else next(texts) for name, count in counts.items()}


class ServedTask(ServedModel):
    """A served model of a fine-tuned task; `task.json` in the run's folder names the kind."""

    @staticmethod
    def completed(settings: ExportSettings, description: TaskDescription, folder: str, step: int) -> TaskDescription:
        """Adds values from the settings and from the run's folder to the description; by default, adds none."""
        del settings, folder, step
        return description


class ServedCheckpoint(ServedModel):
    """A served model from a checkpoint without fine-tuning, in any format; `--task_name` names the kind."""

    @staticmethod
    @abc.abstractmethod
    def parameters(settings: ExportSettings, contents: OpenCheckpoint) -> dict[str, Any]:
        """Returns `TaskDescription.parameters`, the values that the model needs in addition to its weights."""

    @staticmethod
    @abc.abstractmethod
    def make_model(config: BertConfig, parameters: Mapping[str, Any]) -> keras.Model:
        """Returns a model with the attribute `encoder`. `checkpoints.initialize` reads the weights into this model."""
