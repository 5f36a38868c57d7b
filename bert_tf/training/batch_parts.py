"""Computes equal parts of a batch at the same time: one part per core of a small machine.

If all cores share each operation, they wait for each other after every operation, and are idle while one core computes
an operation alone. If each core computes its own part of the batch with one thread per operation, the cores wait for
each other only once per step.

Letters: B rows in a batch.
"""

import os
from collections.abc import Callable, Mapping

import tensorflow as tf

from bert_tf.settings import FineTuningSettings

# Machines with more cores have not been measured. Many small parts would make matrix products inefficient.
_CORES = 2


def choose_parts(settings: FineTuningSettings) -> int:
    """Returns the number of parts of a batch that are computed at the same time.

    The number is 2 on a CPU with two cores if the sizes of all batches and micro-batches are even, XLA is off, and the
    encoder's outputs are not cached. Otherwise, the number is 1. For 2 parts, the function sets the number of threads
    per operation to 1 for the whole process. Call the function before any computation: TensorFlow refuses the setting
    after the first computation, and the function then returns 1.
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

    The function is traced once. The calls do not depend on each other, so TensorFlow runs the calls at the same time.

    Args:
      function: function that takes a part of the batch, and this part's entry in each list of `arguments`.
      batch: columns [B, ...].
      count: number of parts.
      *arguments: lists with one entry per part.

    Returns:
      The function's results, one per part.
    """
    traced, columns = tf.function(function, autograph=False), split(batch, count)
    parts = [{name: value[index] for name, value in columns.items()} for index in range(count)]
    return [traced(*each) for each in zip(parts, *arguments, strict=True)]
