"""The memory that training needs: refuses a model that cannot fit, and explains an error where memory ran out.

Letters: L layers, H hidden size, I intermediate size, V vocabulary size.
"""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.settings import DeviceSettings
from tfrecords.errors import InputError

_BYTES_OF_FLOAT32 = 4
# A weight, its gradient and its two moments.
_TRAINED_COPIES = 4
_MEMORY_FILE = "/proc/meminfo"


def require_memory(config: BertConfig, settings: DeviceSettings, training: bool) -> None:
    """Raises an error if the weights of a model, with gradients and moments in training, exceed the machine's memory.

    Activations are not counted, and neither is what other processes use, so a model that could be trained is never
    refused. Only a CPU's memory is known before the work.

    Raises:
      InputError: states the required and the available memory.
    """
    available = _memory_and_swap()
    on_cpu = not (settings.num_gpus or settings.use_tpu or settings.distribution_strategy == "tpu")
    if not on_cpu or available is None:
        return
    needed = fewest_weights(config) * _BYTES_OF_FLOAT32 * (_TRAINED_COPIES if training else 1)
    if needed > available:
        what = "weights, gradients and moments" if training else "weights"
        raise InputError(
            f"--bert_config_file: the {what} of this model take {needed / 1e9:,.1f} GB, and this machine has "
            f"{available / 1e9:,.1f} GB of memory and swap; make the model smaller (hidden_size={config.hidden_size}, "
            f"num_hidden_layers={config.num_hidden_layers}, vocab_size={config.vocab_size})"
        )


def fewest_weights(config: BertConfig) -> int:
    """Counts the weights of the large matrices of an encoder: V H embeddings, and 4 H^2 + 2 H I a layer."""
    hidden, inner = config.hidden_size, config.intermediate_size
    return config.vocab_size * hidden + config.num_hidden_layers * (4 * hidden**2 + 2 * hidden * inner)


def _memory_and_swap() -> int | None:
    """Returns the total memory and swap of this machine in bytes; None if the system does not tell."""
    try:
        with open(_MEMORY_FILE) as file:
            kilobytes = re.findall(r"^(?:MemTotal|SwapTotal):\s*(\d+) kB$", file.read(), re.MULTILINE)
    except OSError:
        return None
    return sum(map(int, kilobytes)) * 1024 or None


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Converts TensorFlow's error about a tensor that did not fit into memory into one line.

    Raises:
      InputError: names the shape of the tensor, and the flags that need less memory.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        tensor = re.search(r"OOM when allocating tensor with shape\s*(\[[\d,]*\])", error.message)
        if not tensor and "ut of memory" not in error.message:  # a full disk is another matter
            raise
        what = f" for a tensor of shape {tensor[1]}" if tensor else ""
        raise InputError(
            f"out of memory{what}; lower --train_batch_size or --max_seq_length, raise --gradient_accumulation_steps, "
            "or add --recompute_activations"
        ) from error
