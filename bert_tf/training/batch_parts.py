"""Computes equal parts of a batch at the same time: one part per core of a small machine.

If all cores share each operation, they wait for each other after every operation, and are idle while one core computes
an operation alone. If each core computes its own part of the batch with one thread per operation, the cores wait for
each other only once per step.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from bert_tf.core.cores import usable_cores
from bert_tf.settings import DeviceSettings

# Machines with more cores have not been measured. Many small parts would make matrix products inefficient.
_CORES = 2


def choose_parts(settings: DeviceSettings, sizes: Iterable[int]) -> int:
    """Returns the number of parts of a batch that are computed at the same time. The number is 2 on a CPU with two
    cores if all sizes are even and XLA is off. Otherwise, the number is 1. For 2 parts, the function sets the number of
    threads per operation to 1 for the whole process. Call the function before any computation: TensorFlow refuses the
    setting after the first computation, and the function then returns 1.
    `sizes`: numbers of rows of all batches and micro-batches."""
    on_cpu = settings.distribution_strategy in ("off", "one_device") and not (settings.num_gpus or settings.use_tpu)
    if not on_cpu or usable_cores() != _CORES or settings.enable_xla or any(size % _CORES for size in sizes):
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
    """Returns the results of a function for equal parts of a batch. The function is traced once. The calls do not
    depend on each other, so TensorFlow runs the calls at the same time.
    `function`: function that takes a part of the batch, and this part's entry in each list of `arguments`.
    `batch`: columns [B, ...].
    `count`: number of parts.
    `*arguments`: lists with one entry per part."""
    traced, columns = tf.function(function, autograph=False), split(batch, count)
    parts = [{name: value[index] for name, value in columns.items()} for index in range(count)]
    return [traced(*each) for each in zip(parts, *arguments, strict=True)]


def summed(function: Callable, batch: Mapping[str, tf.Tensor], count: int):
    """Applies a function to parts of a batch at the same time, and sums the results.
    `function`: function that takes columns, and returns a structure of sums over their rows.
    `batch`: columns [B, ...]; B may be dynamic, and the parts may differ by one row.
    `count`: number of parts."""
    if count == 1:
        return function(batch)
    rows = tf.shape(next(iter(batch.values())))[0]
    ends = [(rows * number + count - 1) // count for number in range(count + 1)]
    traced = tf.function(function, autograph=False)
    parts = [{name: value[start:end] for name, value in batch.items()} for start, end in itertools.pairwise(ends)]
    return tf.nest.map_structure(lambda *terms: tf.add_n(terms), *map(traced, parts))
