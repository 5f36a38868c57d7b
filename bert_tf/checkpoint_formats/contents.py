"""The contents of a checkpoint of any format: tensors by variable path. Tensors are read only when needed."""

import dataclasses
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf.checkpoint_formats import names
from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.core.progress_bar import ProgressBar

GROWTH_COMMAND = (
    "convert_checkpoint --vocab_file=OLD --extended_vocab_file=NEW extends the model to a larger vocabulary"
)
# Some heads of tf-models-official have their own poolers. These are the prefixes of our paths for such poolers.
HEAD_POOLERS = ("next_sentence/pooler/", "head/pooler/")
# Small models are read without a progress bar, because reading takes too little time.
_SECONDS_BEFORE_BAR = 2.0
_MUST_AGREE = ("num_attention_heads", "hidden_act", "directionality")


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint."""

    name: str
    shape: tuple[int, ...]  # the tensor's shape in our models
    read: Callable[[], np.ndarray]  # function that reads the values in our layout and in the file's dtype

    def transposed(self) -> "StoredTensor":
        return StoredTensor(self.name, self.shape[::-1], lambda: np.ascontiguousarray(self.read().T))

    def reordered(self, order: Sequence[int]) -> "StoredTensor":
        """Returns the tensor with its last axis in a different order: entry i is entry `order[i]` of this tensor."""
        return dataclasses.replace(self, read=lambda: self.read()[..., list(order)])

    def scaled(self, factor: float, shift: float) -> "StoredTensor":
        """Returns the tensor with its values multiplied by a factor, plus a shift."""
        return dataclasses.replace(self, read=lambda: self.read() * factor + shift)

    def reshaped(self, shape: tuple[int, ...]) -> "StoredTensor":
        return StoredTensor(self.name, shape, lambda: self.read().reshape(shape))


@dataclasses.dataclass(frozen=True)
class OpenCheckpoint:
    """An open checkpoint. The values of its tensors are read later."""

    source: str  # prefix or file of the checkpoint. Messages name the checkpoint by this value.
    format: str  # name of the format, such as "bert_tf" or "hugging_face"; see `bert_tf.checkpoints`
    tensors: Mapping[str, StoredTensor]  # the weights, by their variable paths in our models
    # function that maps a variable path to the format's tensor name, for errors about missing tensors
    expected_name: Callable[[str], str]
    config: BertConfig | None  # the model's configuration; None if the folder has none
    config_file: str  # path of the configuration file, which may be missing
    vocab_file: str = ""  # the folder's `vocab.txt` or `tokenizer.json`; "" if there is none
    # tensors of task heads that only bert_tf's format can store, by variable path. `left_over` also contains the names
    # of these tensors.
    own_heads: Mapping[str, StoredTensor] = dataclasses.field(default_factory=dict)
    left_over: tuple[str, ...] = ()  # names of the tensors that are not weights of BERT
    optimizer_tensors: int = 0  # number of tensors that belong to an optimizer
    # number of attention heads; None if the shapes of the tensors do not show this number
    num_attention_heads: int | None = None

    @property
    def folder(self) -> str:
        """The folder of the checkpoint; for a pair of encoders, of the first; for a SavedModel, of `saved_model.pb`."""
        if self.format == "saved_model":
            return os.path.dirname(self.config_file)
        return os.path.dirname(self.source.split(",")[0]) or "."

    def require_config(self) -> BertConfig:
        if self.config is None:
            raise InputError(f"{self.config_file}: no such file; put the configuration of {self.source} there")
        return self.config

    def describe(self, path: str) -> str:
        """Returns a tensor's name for messages: our path, and also the name in the file if the two differ."""
        stored = self.tensors.get(path)
        name = stored.name if stored else self.expected_name(path)
        return path if name in ("", path) else f"{path} ({name})"

    def without_task_heads(self) -> "OpenCheckpoint":
        """Returns the contents without the heads that fine-tuning trained."""
        kept = {path: s for path, s in self.tensors.items() if names.component_of(path) not in names.TASK_HEADS}
        dropped = [self.describe(path) for path in self.tensors if path not in kept]
        return dataclasses.replace(self, tensors=kept, own_heads={}, left_over=(*self.left_over, *dropped))

    def with_lowest_layers(self, layers: int) -> "OpenCheckpoint":
        """Returns the contents without the layers above the lowest ones."""
        kept = {path: s for path, s in self.tensors.items() if (names.layer_of(path) or 0) < layers}
        return dataclasses.replace(self, tensors=kept)

    def has_bilstm_unlike(self, model_paths: Iterable[str]) -> bool:
        """Returns whether the checkpoint's head has a BiLSTM, but the model with these variables does not."""
        return not any(path.startswith(names.BILSTM) for path in model_paths) and any(
            path.startswith(names.BILSTM) for path in self.own_heads
        )

    def with_own_heads(self, model_paths: Iterable[str]) -> "OpenCheckpoint":
        """Returns the contents with `own_heads` among the tensors. A head with a BiLSTM is left out if the model with
        these variables has no BiLSTM."""
        if self.has_bilstm_unlike(model_paths):
            return self
        left_over = tuple(name for name in self.left_over if not name.endswith(tuple(self.own_heads)))
        return dataclasses.replace(self, tensors={**self.tensors, **self.own_heads}, left_over=left_over)

    def with_outputs(self, order: Sequence[int]) -> "OpenCheckpoint":
        """Returns the contents with the outputs of task heads in a different order; see `StoredTensor.reordered`."""
        outputs = {
            path: stored.reordered(order) for path, stored in self.tensors.items()
            if names.component_of(path) in names.TASK_HEADS and path.endswith(("dense/kernel", "dense/bias"))
            and stored.shape[-1] == len(order)
        }  # fmt: skip
        return dataclasses.replace(self, tensors={**self.tensors, **outputs})

    def with_rescaled_output(self, factor: float, shift: float) -> "OpenCheckpoint":
        """Returns the contents with the output s of a head, if there is one, replaced by `factor` * s + `shift`."""
        if (factor, shift) == (1.0, 0.0) or "head/dense/kernel" not in self.tensors:
            return self
        scaled = {
            path: self.tensors[path].scaled(factor, shift if path.endswith("bias") else 0.0)
            for path in ("head/dense/kernel", "head/dense/bias")
        }
        return dataclasses.replace(self, tensors={**self.tensors, **scaled})

    def check(self, config: BertConfig, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Checks that the tensors fit a model. The encoder must be complete and must have no additional tensors. The
        pooler and each head must be either complete or absent.
        `shapes`: shapes of the model's variables by path, including the encoder's variables.
        Returns paths of the variables that the checkpoint lacks. These variables keep their initial values."""
        self._check_same_architecture(config, shapes)
        present = {names.component_of(path) for path in self.tensors}
        fresh = [path for path in shapes if path not in self.tensors]
        for path in fresh:
            if names.component_of(path) in present:
                raise InputError(
                    f"{self.source}: the tensor {self.describe(path)} is missing; the checkpoint is incomplete or has "
                    f"another architecture; {self._remedy(path, config)}, or copy the checkpoint again"
                )
        for path, shape in shapes.items():
            if path in self.tensors and tuple(self.tensors[path].shape) != tuple(shape):
                raise InputError(self._shape_error(path, shape, config))
        return fresh

    def _shape_error(self, path: str, shape: tuple[int, ...], config: BertConfig) -> str:
        stored = self.tensors[path].shape
        is_vocabulary = path in (names.WORDS, "masked_lm/bias")
        can_grow = is_vocabulary and len(stored) == len(shape) and tuple(stored[1:]) == tuple(shape[1:])
        return (
            f"{self.source}: the tensor {self.describe(path)} has shape {list(stored)}, the model needs {list(shape)}; "
            f"{self._remedy(path, config)}{f'; {GROWTH_COMMAND}' if can_grow else ''}"
        )

    def _remedy(self, path: str, config: BertConfig) -> str:
        """Returns the advice for a tensor that does not fit the model."""
        if names.component_of(path) in names.TASK_HEADS:
            return (
                "give the task that the checkpoint was trained on, or --reinitialize_head for the encoder with a new, "
                "random head"
            )
        if self.config is None:
            return "give the checkpoint's bert_config.json"
        if self.config != config:
            return f"give {self.config_file}, the checkpoint's own configuration"
        return f"replace {self.config_file} with the checkpoint's own configuration"

    def _check_same_architecture(self, config: BertConfig, shapes: Iterable[str]) -> None:
        """Refuses differences that a comparison of the model's shapes does not find. These differences are extra
        layers, the number of attention heads, the activation and the directionality."""
        extra = sorted(path for path in self.tensors if path.startswith("encoder/") and path not in shapes)
        if extra:
            raise InputError(
                f"{self.source}: the tensor {self.describe(extra[0])} has no place in the model; the checkpoint has "
                f"another architecture; {self._remedy(extra[0], config)}"
            )
        recorded = {name: getattr(self.config, name, None) for name in _MUST_AGREE}
        recorded["num_attention_heads"] = self.num_attention_heads or recorded["num_attention_heads"]
        for name, value in recorded.items():
            if value is not None and value != getattr(config, name):
                raise InputError(
                    f"{self.source}: has {name}={value}, but the model has {getattr(config, name)}; "
                    f"give {self.config_file}"
                )

    def check_pretrained(self, config: BertConfig) -> list[str]:
        """Checks that the checkpoint's encoder and heads fit a configuration. For the result and the errors, see
        `check`."""
        # `own_heads` are not checked, since the shapes depend on the task.
        present = names.heads_in(self.tensors) - names.heads_in(self.own_heads)
        heads = (names.pretraining_head_shapes(config) | self._task_head_shapes(config)).items()
        heads = {path: shape for path, shape in heads if names.component_of(path) in present}
        return self.check(config, names.encoder_shapes(config) | heads)

    def _task_head_shapes(self, config: BertConfig) -> dict[str, tuple[int, ...]]:
        """Returns the shapes that the task heads must have; the tensors determine the number of outputs."""
        shapes = {}
        for head in names.TASK_HEADS:
            kernel, bias = f"{head}/dense/kernel", f"{head}/dense/bias"
            stored = [self.tensors[path].shape for path in (kernel, bias) if path in self.tensors]
            outputs = 2 if head == "span_head" else next((shape[-1] for shape in stored if shape), 1)
            shapes |= {kernel: (config.hidden_size, outputs), bias: (outputs,)}
        return shapes

    def read(self, paths: Iterable[str]) -> dict[str, np.ndarray]:
        """Reads tensors as float32, and shows the progress. Logs how many tensors were rounded from float64."""
        paths, values, rounded = list(paths), {}, 0
        with ProgressBar(f"reading {self.source}", len(paths), "tensors", delay=_SECONDS_BEFORE_BAR) as bar:
            for path in paths:
                value = _read_as_stored(self.tensors[path], self.source)
                rounded += value.dtype == np.float64
                values[path] = _as_float32(value, self.tensors[path].name, self.source)
                bar.update()
        if rounded:
            logging.info("%s: %d tensors are float64 and were rounded to float32", self.source, rounded)
        return values

    def sha256(self, paths: Iterable[str]) -> str:
        """Hashes the configuration and some weights; the hash does not depend on the format of the checkpoint."""
        digest = hashlib.sha256(repr(self.require_config()).encode())
        for path, value in self.read(sorted(paths)).items():
            digest.update(path.encode() + value.tobytes())
        return digest.hexdigest()

    def report(self, loaded: Iterable[str], fresh: Iterable[str]) -> None:
        """Logs which tensors were loaded, which variables keep their initial values, and which tensors are unused."""
        loaded = set(loaded)
        logging.info("loaded %d tensors from %s (%s)", len(loaded), self.source, self.format)
        if fresh:
            logging.info(
                "these variables are not taken from the checkpoint, and keep their initial values: %s",
                ", ".join(sorted(fresh)),
            )
        left_over = sorted(self.describe(path) for path in self.tensors if path not in loaded) + sorted(self.left_over)
        if self.optimizer_tensors:
            left_over.append(f"{self.optimizer_tensors} optimizer tensors")
        if left_over:
            logging.info("unused tensors of the checkpoint: %s", ", ".join(left_over))


def refuse_strangers(source: str, strangers: Iterable[str]) -> None:
    """Refuses a checkpoint whose encoder has tensors that are not part of BERT."""
    first = min(strangers, default=None)
    if first is not None:
        raise InputError(
            f"{source}: the tensor {first} has no place in the model; the checkpoint's architecture is not BERT; "
            "give a BERT checkpoint"
        )


def are_equal(one: StoredTensor, other: StoredTensor, source: str) -> bool:
    """Returns whether two tensors have the same shape and the same values in float32."""
    values = (_as_float32(_read_as_stored(stored, source), stored.name, source) for stored in (one, other))
    return one.shape == other.shape and np.array_equal(*values)


def _read_as_stored(stored: StoredTensor, source: str) -> np.ndarray:
    try:
        return np.asarray(stored.read())
    except InputError:
        raise
    except Exception as error:  # TensorFlow, safetensors and the file system raise different classes of errors
        reason = str(error).split("\n")[0]
        raise InputError(
            f"{source}: the tensor {stored.name} cannot be read ({reason}); copy the file again"
        ) from error


def _as_float32(value: np.ndarray, name: str, source: str) -> np.ndarray:
    with np.errstate(over="ignore"):  # a value that overflows becomes infinite, and is refused below
        value = value.astype(np.float32, copy=False)
    if not np.isfinite(value).all():
        raise InputError(
            f"{source}: the tensor {name} has infinite values or NaN; copy it again, or give an earlier checkpoint"
        )
    return value


def with_trained_pooler(contents: OpenCheckpoint) -> OpenCheckpoint:
    """Returns the contents with the pooler that was trained with the checkpoint's head. Some heads of
    tf-models-official have their own pooler. In such checkpoints, the encoder's pooler is untrained."""
    head_pooler = {path: s for path, s in contents.tensors.items() if path.startswith(HEAD_POOLERS)}
    if not head_pooler:
        return contents
    tensors = {path: stored for path, stored in contents.tensors.items() if path not in head_pooler}
    replaced = []
    for path, stored in head_pooler.items():
        ours = f"encoder/pooler/{path.split('/')[-1]}"
        if ours in tensors and not are_equal(tensors[ours], stored, contents.source):
            replaced.append(tensors[ours].name)
        tensors[ours] = stored
    if replaced:
        logging.info(
            "using the pooler that was trained with the head: %s",
            ", ".join(stored.name for stored in head_pooler.values()),
        )
    return dataclasses.replace(contents, tensors=tensors, left_over=contents.left_over + tuple(replaced))


def without_head_axis(path: str, stored: StoredTensor) -> StoredTensor:
    """Merges the axes A and D: reshapes kernels [H, A, D] and [A, D, H] to [H, H], and biases [A, D] to [H]."""
    if "/attention/" not in path:
        return stored
    shape = stored.shape
    if path.endswith("bias"):
        return stored.reshaped((math.prod(shape),))
    if path.endswith("output_dense/kernel"):
        return stored.reshaped((math.prod(shape[:-1]), shape[-1]))
    return stored.reshaped((shape[0], math.prod(shape[1:])))
