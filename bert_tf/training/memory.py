"""Checks the memory that training needs: refuses a model that does not fit, and explains out-of-memory errors.

Letters: L layers, H hidden size, I intermediate size, A attention heads, V vocabulary size, B rows in a batch,
S tokens in a row.
"""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.core.errors import InputError
from bert_tf.settings import DeviceSettings, FineTuningSettings, PretrainingSettings

_BYTES_OF_FLOAT32 = 4
# For each weight, memory contains the weight, its gradient and its two moments.
_TRAINED_COPIES = 4
# Dropout indexes the elements of a tensor with int32.
_MOST_VALUES = 2**31 - 1
# Messages with which TensorFlow's kernels, XLA and C++ report that memory ran out.
_OUT_OF_MEMORY = re.compile(r"OOM when allocating|ut of memory|ailed to allocate|bad_alloc")
_MEMORY_FILE = "/proc/meminfo"


def require_memory(config: BertConfig, settings: DeviceSettings, training: bool) -> None:
    """Raises an error if a model's weights (in training also gradients and moments) exceed the machine's memory.

    The check ignores activations and the memory of other processes, so it never refuses a model that could be trained.
    The check applies only to CPUs, since the memory of other devices is not known in advance.

    Raises:
      InputError: states the required and the available memory.
    """
    available = _available(settings)
    if available is None:
        return
    needed = fewest_weights(config) * _BYTES_OF_FLOAT32 * (_TRAINED_COPIES if training else 1)
    if needed > available:
        what = "weights, gradients and moments" if training else "weights"
        raise InputError(
            f"--bert_config_file: the {what} of this model need {needed / 1e9:,.1f} GB, but this machine has "
            f"{available / 1e9:,.1f} GB of memory and swap; make the model smaller (hidden_size={config.hidden_size}, "
            f"num_hidden_layers={config.num_hidden_layers}, vocab_size={config.vocab_size})"
        )


def require_batch_memory(
    config: BertConfig,
    settings: PretrainingSettings | FineTuningSettings,
    replicas: int,
    micro_batch: tuple[int, int] | None = None,
) -> None:
    """Raises an error if a training batch exceeds a CPU's memory, or the tensor size that dropout supports.

    The check counts only the ids and one activation [B, S, H], so it never refuses a batch that fits.

    Args:
      config: the model's configuration.
      settings: settings of a training run, including the sequence length.
      replicas: number of replicas that share the batch equally.
      micro_batch: number and length of the rows in a micro-batch of packed rows; None to derive both from the settings.

    Raises:
      InputError: states the required memory or tensor size, and the flags that reduce memory use.
    """
    steps = settings.gradient_accumulation_steps
    rows, length = micro_batch or (settings.train_batch_size // replicas // steps, settings.max_seq_length)
    at_once = rows * length
    tokens = at_once * steps
    hidden = at_once * config.hidden_size
    values = hidden if config.hidden_dropout_prob else 0
    if config.attention_probs_dropout_prob:
        values = max(values, at_once * config.num_attention_heads * length)
    flag = f"--train_batch_size={settings.train_batch_size} with --max_seq_length={settings.max_seq_length}"
    remedy = "lower them, or raise --gradient_accumulation_steps"
    needed = tokens * _BYTES_OF_FLOAT32 + hidden * (4 if settings.dtype == "float32" else 2)
    available = _available(settings)
    if available is not None and needed > available:
        raise InputError(
            f"{flag}: the ids and one activation alone need {needed / 1e9:,.1f} GB, but this machine has "
            f"{available / 1e9:,.1f} GB of memory and swap; {remedy}"
        )
    if values > _MOST_VALUES:
        raise InputError(
            f"{flag}: a tensor on a device would have {values:,} values, but dropout supports only {_MOST_VALUES:,}; "
            f"{remedy}"
        )


def fewest_weights(config: BertConfig) -> int:
    """Counts the weights in the large matrices of an encoder: V H embeddings, and 4 H^2 + 2 H I per layer."""
    hidden, inner = config.hidden_size, config.intermediate_size
    return config.vocab_size * hidden + config.num_hidden_layers * (4 * hidden**2 + 2 * hidden * inner)


def _available(settings: DeviceSettings) -> int | None:
    """Returns the memory for training on a CPU, in bytes; None for other devices, or if the size is unknown."""
    on_cpu = not (settings.num_gpus or settings.use_tpu or settings.distribution_strategy == "tpu")
    return _memory_and_swap() if on_cpu else None


def _memory_and_swap() -> int | None:
    """Returns the total memory and swap of this machine in bytes; None if unknown."""
    try:
        with open(_MEMORY_FILE) as file:
            kilobytes = re.findall(r"^(?:MemTotal|SwapTotal):\s*(\d+) kB$", file.read(), re.MULTILINE)
    except OSError:
        return None
    return sum(map(int, kilobytes)) * 1024 or None


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Converts an out-of-memory error of any class, from any part of a run, into a one-line error.

    Raises:
      InputError: names the shape of the tensor, and the flags that reduce memory use.
    """
    try:
        yield
    except (tf.errors.OpError, MemoryError) as error:
        message = str(error)
        # TensorFlow also reports other faults, such as a full disk, with these classes of errors.
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(message):
            raise
        tensor = re.search(r"OOM when allocating tensor with shape\s*(\[[\d,]*\])", message)
        what = f" for a tensor of shape {tensor[1]}" if tensor else ""
        raise InputError(
            f"out of memory{what}; lower --train_batch_size, --eval_batch_size or --max_seq_length, raise "
            "--gradient_accumulation_steps, or add --recompute_activations"
        ) from error
