"""Explains out-of-memory errors."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.core.errors import InputError

# Messages with which TensorFlow's kernels, XLA and C++ report that memory ran out.
_OUT_OF_MEMORY = re.compile(r"OOM when allocating|ut of memory|ailed to allocate|bad_alloc")


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
