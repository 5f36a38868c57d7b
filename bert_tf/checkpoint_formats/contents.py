"""What a checkpoint holds, whatever its format: tensors under the paths of our models, read one by one.

Letters: H hidden size.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from absl import logging

from bert_tf.checkpoint_formats import names
from bert_tf.config import BertConfig
from tfrecords.errors import InputError

GROWTH_COMMAND = (
    "convert_checkpoint --vocab_file=OLD --extended_vocab_file=NEW gives the model rows for another vocabulary"
)
# where a head of tf-models-official that pools by itself has its pooler
HEAD_POOLERS = ("next_sentence/pooler/", "head/pooler/")
_MUST_AGREE = ("num_attention_heads", "hidden_act", "directionality")


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint.

    Attributes:
      name: its name in the file.
      shape: its shape in our models.
      read: reads it as our models have it, in the file's type.
    """

    name: str
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def transposed(self) -> "StoredTensor":
        """The same with its axes exchanged."""
        return StoredTensor(self.name, self.shape[::-1], lambda: np.ascontiguousarray(self.read().T))

    def reshaped(self, shape: tuple[int, ...]) -> "StoredTensor":
        """The same values in another shape."""
        return StoredTensor(self.name, shape, lambda: self.read().reshape(shape))


@dataclasses.dataclass(frozen=True)
class Contents:
    """A checkpoint, opened but not read.

    Attributes:
      source: its file, as messages name it.
      format: "bert_tf", "tf1", "tf_models" or "hugging_face".
      tensors: by the path that they have in our models.
      expected_name: this format's name for a path, to say what is missing.
      config: what it was made with; None where no configuration lies beside it.
      config_file: the file that says so, or where one is looked for.
      vocab_file: `vocab.txt` beside it; "" for none.
      left_over: names of what is no weight of BERT.
      optimizer_tensors: how many tensors of an optimizer there are besides.
      moments: both moments of Adam by the path of their weight, where the format has them.
      global_step: number of the step; None where the file does not tell.
      num_attention_heads: what the shapes tell of the heads; None where they do not.
    """

    source: str
    format: str
    tensors: Mapping[str, StoredTensor]
    expected_name: Callable[[str], str]
    config: BertConfig | None
    config_file: str
    vocab_file: str = ""
    left_over: tuple[str, ...] = ()
    optimizer_tensors: int = 0
    moments: Mapping[str, tuple[StoredTensor, StoredTensor]] = dataclasses.field(default_factory=dict)
    global_step: int | None = None
    num_attention_heads: int | None = None

    def require_config(self) -> BertConfig:
        """The configuration.

        Raises:
          InputError: there is none; names the file to put beside the checkpoint.
        """
        if self.config is None:
            raise InputError(
                f"{self.config_file}: no such file; put the configuration that {self.source} was made with there"
            )
        return self.config

    def describe(self, path: str) -> str:
        """How messages name a tensor: our path, and the name in the file where it is another."""
        stored = self.tensors.get(path)
        name = stored.name if stored else self.expected_name(path)
        return path if name in ("", path) else f"{path} ({name})"

    def check(self, config: BertConfig, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Whether the tensors fit a model.

        The encoder must be there with nothing missing and nothing besides; its pooler, and each head, as a whole or
        not at all.

        Args:
          config: the model's configuration.
          shapes: shapes of the model's variables by their paths, those of the encoder among them.

        Returns:
          Paths that the checkpoint does not have, and that start afresh.

        Raises:
          InputError: names the tensor, or the key of the configuration.
        """
        self._check_same_architecture(config, shapes)
        present = {names.head_of(path) for path in self.tensors}
        fresh = [path for path in shapes if path not in self.tensors]
        for path in fresh:
            if names.head_of(path) in present:
                raise InputError(
                    f"{self.source}: the tensor {self.describe(path)} is missing; the checkpoint is of another "
                    f"architecture or incomplete; {self._mend(path, config)}, or copy it again"
                )
        for path, shape in shapes.items():
            if path in self.tensors and tuple(self.tensors[path].shape) != tuple(shape):
                raise InputError(self._other_shape(path, shape, config))
        return fresh

    def _other_shape(self, path: str, shape: tuple[int, ...], config: BertConfig) -> str:
        has = self.tensors[path].shape
        is_vocabulary = path in ("encoder/embeddings/word_embeddings", "masked_lm/bias")
        can_grow = is_vocabulary and len(has) == len(shape) and tuple(has[1:]) == tuple(shape[1:])
        return (
            f"{self.source}: the tensor {self.describe(path)} has shape {list(has)}, the model needs {list(shape)}; "
            f"{self._mend(path, config)}{f'; {GROWTH_COMMAND}' if can_grow else ''}"
        )

    def _mend(self, path: str, config: BertConfig) -> str:
        """What to do about a model that a tensor does not fit."""
        if names.head_of(path) in names.TASK_HEADS:
            return "give the task it was made with"
        if self.config is None:
            return "give the bert_config.json it was made with"
        if self.config != config:
            return f"give {self.config_file}, which it was made with"
        return f"put the configuration it was made with into {self.config_file}"

    def _check_same_architecture(self, config: BertConfig, shapes: Iterable[str]) -> None:
        """Refuses what shapes do not show: more layers in the file, other heads, another activation."""
        extra = sorted(path for path in self.tensors if path.startswith("encoder/") and path not in shapes)
        if extra:
            raise InputError(
                f"{self.source}: the tensor {self.describe(extra[0])} has no place in the model; the checkpoint is "
                f"of another architecture; {self._mend(extra[0], config)}"
            )
        made_with = {name: getattr(self.config, name, None) for name in _MUST_AGREE}
        made_with["num_attention_heads"] = self.num_attention_heads or made_with["num_attention_heads"]
        for name, value in made_with.items():
            if value is not None and value != getattr(config, name):
                raise InputError(
                    f"{self.source}: was made with {name}={value}, the model has {getattr(config, name)}; "
                    f"give {self.config_file}"
                )

    def check_pretrained(self, config: BertConfig) -> list[str]:
        """Whether the encoder's tensors, and those of the heads that are there, fit a configuration.

        Returns, Raises: those of `check`.
        """
        there = names.heads_in(self.tensors)
        heads = (names.pretraining_head_shapes(config) | self._task_head_shapes(config)).items()
        heads = {path: shape for path, shape in heads if names.head_of(path) in there}
        return self.check(config, names.encoder_shapes(config) | heads)

    def _task_head_shapes(self, config: BertConfig) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights of tasks' heads, with as many outputs as the tensors that are there have."""
        shapes = {}
        for head in names.TASK_HEADS:
            kernel, bias = f"{head}/dense/kernel", f"{head}/dense/bias"
            there = [self.tensors[path].shape for path in (kernel, bias) if path in self.tensors]
            outputs = 2 if head == "span_head" else next((shape[-1] for shape in there if shape), 1)
            shapes |= {kernel: (config.hidden_size, outputs), bias: (outputs,)}
        return shapes

    def read(self, paths: Iterable[str]) -> dict[str, np.ndarray]:
        """Reads tensors as float32, and says so where that rounds them.

        Raises:
          InputError: the file is damaged, or holds what is no number.
        """
        values, rounded = {}, 0
        for path in paths:
            value = _read_as_stored(self.tensors[path], self.source)
            rounded += value.dtype == np.float64
            values[path] = _as_float32(value, self.tensors[path].name, self.source)
        if rounded:
            logging.info("%s: %d tensors are float64 and were rounded to float32", self.source, rounded)
        return values

    def report(self, loaded: Iterable[str], fresh: Iterable[str]) -> None:
        """Logs what was loaded, what starts afresh, and what was left over."""
        loaded = set(loaded)
        logging.info("loaded %d tensors of the model from %s (%s)", len(loaded), self.source, self.format)
        if fresh:
            logging.info("start afresh: %s", ", ".join(sorted(fresh)))
        left_over = sorted([self.describe(path) for path in self.tensors if path not in loaded]) + sorted(
            self.left_over
        )
        if self.optimizer_tensors:
            left_over.append(f"{self.optimizer_tensors} tensors of the optimizer")
        if left_over:
            logging.info("left over in the checkpoint: %s", ", ".join(left_over))


def refuse_strangers(source: str, strangers: Iterable[str]) -> None:
    """Refuses tensors of an encoder that BERT's has not.

    Raises:
      InputError: there are any; names the first.
    """
    first = min(strangers, default=None)
    if first is not None:
        raise InputError(
            f"{source}: the tensor {first} has no place in the model; the checkpoint is of another architecture than "
            "BERT's; take one of BERT"
        )


def read_tensor(stored: StoredTensor, source: str) -> np.ndarray:
    """Reads one tensor as float32.

    Raises:
      InputError: the file is damaged, or the tensor holds what is no number.
    """
    return _as_float32(_read_as_stored(stored, source), stored.name, source)


def _read_as_stored(stored: StoredTensor, source: str) -> np.ndarray:
    try:
        return np.asarray(stored.read())
    except InputError:
        raise
    except Exception as error:  # TensorFlow, safetensors and the file system each have their own
        reason = str(error).split("\n")[0]
        raise InputError(f"{source}: its data cannot be read ({stored.name}: {reason}); copy it again") from error


def _as_float32(value: np.ndarray, name: str, source: str) -> np.ndarray:
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is refused
        value = value.astype(np.float32, copy=False)
    if not np.isfinite(value).all():
        raise InputError(
            f"{source}: the tensor {name} holds values that are infinite or no numbers; "
            "copy it again, or take an earlier checkpoint"
        )
    return value


def trained_pooler(contents: Contents) -> Contents:
    """The contents with the pooler that the checkpoint's head was trained with.

    tf-models-official's heads may bring a pooler of their own; the encoder's is then one that nothing trained.
    """
    of_head = {path: s for path, s in contents.tensors.items() if path.startswith(HEAD_POOLERS)}
    if not of_head:
        return contents
    tensors = {path: stored for path, stored in contents.tensors.items() if path not in of_head}
    replaced = []
    for path, stored in of_head.items():
        ours = f"encoder/pooler/{path.split('/')[-1]}"
        if ours in tensors and not _equal(tensors[ours], stored, contents.source):
            replaced.append(tensors[ours].name)
        tensors[ours] = stored
    if replaced:
        logging.info("the pooler is %s, which the head was trained with", ", ".join(s.name for s in of_head.values()))
    return dataclasses.replace(contents, tensors=tensors, left_over=contents.left_over + tuple(replaced))


def _equal(a: StoredTensor, b: StoredTensor, source: str) -> bool:
    return a.shape == b.shape and np.array_equal(read_tensor(a, source), read_tensor(b, source))
