"""What every served model has: from raw strings, or tokens, to answers, with the tokenizer in the graph.

Letters: B batch, S sequence length, N choices of an example.
"""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.checkpoint_formats.contents import Contents
from bert_tf.config import BertConfig
from bert_tf.finetuning.description import TaskDescription
from bert_tf.tasks import evaluation_file
from bert_tf.text.packing import pack, without_common_padding
from bert_tf.tokenization import BertTokenizer
from export.settings import ExportSettings

# Further signatures by name: what answers, and its inputs.
MoreSignatures = dict[str, tuple[Callable[..., dict[str, tf.Tensor]], dict[str, tf.TensorSpec]]]
PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{name}" for name in ("predict", "classify", "regress"))
_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "She sold her house in the city and moved to the country.",
    "How long does it take to get from here to the station?",
    "It was not a bad film, but the book is better.",
)


class ServedModel(tf.Module, abc.ABC):
    """A model with its tokenizer, from strings to answers. A subclass is one kind of answer.

    All outputs are dense, have stable names and the batch dimension first, and an empty batch has answers too.

    Args:
      model: with trained weights; called with what `BertEncoder` reads.
      tokenizer: the one it was trained with.
      description: of its task. That of a checkpoint without a task has the parameters of its kind.
      assets: files to carry along, by name.

    Attributes:
      method: TF Serving's method of the signature `examples`: `PREDICT`, `CLASSIFY` or `REGRESS`.
    """

    method = PREDICT

    def __init__(
        self, model: keras.Model, tokenizer: BertTokenizer, description: TaskDescription, assets: Mapping[str, str]
    ):
        super().__init__()
        self.tokenizer = tokenizer
        # The weights are tracked, the Keras model is not: it would add a function for every layer.
        self.weights = model.variables
        # All signatures call one function, so that the graph holds the model once.
        traced = tf.function(functools.partial(model, training=False), autograph=False)
        self._model = lambda inputs: traced(inputs)
        self.assets = {name: tf.saved_model.Asset(path) for name, path in assets.items()}
        self._description = description

    @abc.abstractmethod
    def inputs(self) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of `answer` by their names: string [None], or [None, None] for several texts a row."""

    @abc.abstractmethod
    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers a batch of raw strings, given by the names of `inputs`."""

    @abc.abstractmethod
    def answer_tokens(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Answers rows; where an answer needs the text, the outputs are the scores of the tokens.

        Args:
          inputs: `input_ids`, `input_mask` and `segment_ids`, int32 of the shape of `token_spec`; S is dynamic.
        """

    def more_signatures(self) -> MoreSignatures:
        """Returns signatures beside those that every kind has, with inputs as in `inputs`; none by default."""
        return {}

    def token_spec(self) -> tf.TensorSpec:
        """Returns what each input of `answer_tokens` is; [B, S], unless a kind has [B, N, S]."""
        return tf.TensorSpec([None, None], tf.int32)

    @property
    def length(self) -> int:
        """Length of a row, S."""
        return self._description.max_seq_length

    def rows(self, segment_a: tf.RaggedTensor, segment_b: tf.RaggedTensor | None = None) -> dict[str, tf.Tensor]:
        """Packs token ids, int32 [B, (tokens)], into rows; columns that are padding in every row are dropped."""
        ids = {"cls_id": self.tokenizer.cls_id, "sep_id": self.tokenizer.sep_id}
        return without_common_padding(pack(segment_a, segment_b, max_seq_length=self.length, **ids))

    def example_outputs(self, answers: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the outputs of the signature `examples` for what `answer` returned.

        With the method `CLASSIFY` they are `classes`, string [B, C], and `scores`, float32 [B, C]; with `REGRESS`
        `outputs`, float32 [B]. `PREDICT` leaves the answers as they are.
        """
        return dict(answers)

    def samples(self, folder: str) -> list[dict[str, Any]]:
        """Returns real inputs, one dict of a row's inputs each, for the requests that warm a server up.

        Args:
          folder: of the checkpoint. `dev_predictions.jsonl` gives the texts if it has them, else they are fixed.
        """
        inputs = self.inputs()
        rows = ({name: line.get(name) for name in inputs} for line in dev_lines(folder))
        kept = [row for row in rows if all(_fits(row[name], spec) for name, spec in inputs.items())]
        return kept or [_fixed_sample(inputs, _SENTENCES[number:] + _SENTENCES[:number]) for number in range(4)]


def dev_lines(folder: str) -> list[dict[str, Any]]:
    """Returns what the last evaluation of a run kept of its dev data; nothing if that is missing or damaged."""
    try:
        return evaluation_file.read(folder)
    except ValueError:  # nothing but the report needs the file
        logging.warning("%s: a damaged %s; the warm-up has other texts", folder, evaluation_file.NAME)
        return []


def _fits(value: Any, spec: tf.TensorSpec) -> bool:
    """Whether a value of a JSON file is a text, or the texts, of an input."""
    texts = value if isinstance(value, list) else [value]
    return isinstance(value, str) == (spec.shape.rank == 1) and bool(texts) and all(isinstance(t, str) for t in texts)


def _fixed_sample(inputs: Mapping[str, tf.TensorSpec], sentences: Sequence[str]) -> dict[str, Any]:
    """Returns a row: of each input one sentence, or as many as its second axis has, 2 if that is dynamic."""
    row, start = {}, 0
    for name, spec in inputs.items():
        count = 1 if spec.shape.rank == 1 else spec.shape[1] or 2
        texts = [sentences[(start + number) % len(sentences)] for number in range(count)]
        row[name], start = (texts[0] if spec.shape.rank == 1 else texts), start + count
    return row


class ServedTask(ServedModel):
    """A kind that fine-tuning trains; `task.json` in the run's folder names it."""

    @staticmethod
    def completed(settings: ExportSettings, description: TaskDescription, folder: str, step: int) -> TaskDescription:
        """Adds what answers need from settings and a run's folder, for its checkpoint of a step; nothing by default.

        Raises:
          InputError: the settings do not fit the kind, or the folder is damaged.
        """
        del settings, folder, step
        return description


class ServedCheckpoint(ServedModel):
    """A kind that a checkpoint of any format has without fine-tuning; `--task_name` names it."""

    @property
    def length(self) -> int:
        """See `ServedModel`."""
        return self._description.parameters["max_seq_length"]

    @staticmethod
    @abc.abstractmethod
    def parameters(settings: ExportSettings, contents: Contents) -> dict[str, Any]:
        """Returns what the answers need besides the weights, as JSON, for `TaskDescription.parameters`.

        Raises:
          InputError: the checkpoint lacks what the kind needs, or the settings do not fit it.
        """

    @staticmethod
    @abc.abstractmethod
    def make_model(config: BertConfig, parameters: Mapping[str, Any]) -> keras.Model:
        """Returns a model with an `encoder`, for `checkpoints.initialize`."""
