"""Equal parts of a batch, computed at the same time: one part for each core of a small machine.

If all cores share each operation, they wait for each other at its end, and an operation that one core computes leaves
the others idle. If each core computes a part of the batch with one thread an operation, they wait once a step.

Letters: B batch.
"""

import os
from collections.abc import Callable, Mapping

import tensorflow as tf

from bert_tf.settings import FineTuningSettings

# More cores were not measured. Each of many parts would be too small for efficient products.
_CORES = 2


def choose_parts(settings: FineTuningSettings) -> int:
    """Returns the number of parts of a batch to compute at once: on a CPU with two cores 2, else 1.

    For several parts it sets the number of threads of an operation to 1, for the whole process. So call it before any
    computation; later TensorFlow refuses, and the number is 1.
    """
    on_cpu = settings.distribution_strategy in ("off", "one_device") and not (settings.num_gpus or settings.use_tpu)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = [
        size
        for size, wanted in (
            (settings.train_batch_size // settings.gradient_accumulation_steps, settings.do_train),
            (settings.eval_batch_size, settings.do_eval),
            (settings.predict_batch_size, settings.do_predict),
        )
        if wanted
    ]
    if (
        not on_cpu
        or getattr(settings, "feature_layers", "")
        or cores != _CORES
        or settings.enable_xla
        or any(size % _CORES for size in asked)
    ):
        return 1
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    except RuntimeError:
        return 1
    return _CORES


def split(batch: Mapping[str, tf.Tensor], count: int) -> dict[str, tf.Tensor]:
    """Splits the columns [B, ...] of a batch into equal parts: [count, B / count, ...]."""
    return {
        name: tf.reshape(value, [count, value.shape[0] // count, *value.shape[1:]]) for name, value in batch.items()
    }


def side_by_side(function: Callable, batch: Mapping[str, tf.Tensor], count: int, *arguments: list) -> list:
    """Applies a function to equal parts of a batch.

    It is traced once. Nothing orders its calls, so TensorFlow runs them at the same time.

    Args:
      function: takes a part and further arguments.
      batch: columns [B, ...].
      count: number of parts.
      *arguments: lists with an entry for each part.

    Returns:
      What the function returned for each part.
    """
    traced, columns = tf.function(function, autograph=False), split(batch, count)
    parts = [{name: value[index] for name, value in columns.items()} for index in range(count)]
    return [traced(*each) for each in zip(parts, *arguments, strict=True)]
