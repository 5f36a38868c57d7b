"""The context of every run: the lock of its folder, determinism, and one-line error messages."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.core.errors import InputError
from bert_tf.distributed import strategies, workarounds, workers
from bert_tf.runs import run_folder
from bert_tf.settings import FineTuningSettings, PretrainingSettings

# Messages with which TensorFlow's kernels, XLA and C++ report that memory ran out.
_OUT_OF_MEMORY = re.compile(r"OOM when allocating|ut of memory|ailed to allocate|bad_alloc")


@contextlib.contextmanager
def session(
    settings: PretrainingSettings | FineTuningSettings, strategy: tf.distribute.Strategy
) -> Iterator[run_folder.Lock | None]:
    """Locks the run's folder if this process trains, and explains errors about lost workers and exhausted memory.
    `--deterministic` takes effect inside this context. Yields the lock; None in a process that does not write
    checkpoints."""
    locked = settings.do_train and strategies.is_chief(strategy)
    with (
        workarounds.deterministic_operations(settings.deterministic),
        workers.clear_errors(),
        clear_memory_errors(settings),
        run_folder.Lock(settings.output_dir) if locked else contextlib.nullcontext() as lock,
    ):
        yield lock


@contextlib.contextmanager
def clear_memory_errors(settings: PretrainingSettings | FineTuningSettings) -> Iterator[None]:
    """Converts an out-of-memory error of any class, from any part of a run, into a one-line error."""
    try:
        yield
    except (tf.errors.OpError, MemoryError) as error:
        message = str(error)
        # TensorFlow also reports other faults, such as a full disk, with these classes of errors.
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(message):
            raise
        tensor = re.search(r"OOM when allocating tensor with shape\s*(\[[\d,]*\])", message)
        what = f" for a tensor of shape {tensor[1]}" if tensor else ""
        # The rows of pre-training have the length of the data.
        more = ", --predict_batch_size or --max_seq_length" if isinstance(settings, FineTuningSettings) else ""
        raise InputError(
            f"out of memory{what}; lower --train_batch_size or --eval_batch_size{more}, raise "
            "--gradient_accumulation_steps, or add --recompute_activations"
        ) from error
