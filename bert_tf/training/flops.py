"""FLOPs of a training step by formula, and the peak FLOP/s of a device.

Model FLOP utilization is the first, per second, divided by the second.

Letters: L layers, H hidden size, I intermediate size, S sequence length, P predictions, V vocabulary size, N examples
of a packed row.
"""

import dataclasses
import functools
import os
import re
import time
from collections.abc import Callable

import tensorflow as tf

from bert_tf.config import BertConfig

# The backward pass computes two products for each one of the forward pass: the gradients of its input and its weights.
_TRAINING_OVER_FORWARD = 3

# Published dense peaks of one GPU in 10^12 FLOP/s: (float16 and bfloat16; float32, for which TensorFlow uses TF32 where
# the GPU has it). The first pattern found in the device's name counts.
_GPUS = (
    ("H200", 989.5, 494.7),
    ("H100 PCIe", 756.0, 378.0),
    ("H100 NVL", 835.0, 417.5),
    ("H100", 989.5, 494.7),
    ("A100", 312.0, 156.0),
    ("L40S", 362.0, 183.0),
    ("L4", 121.0, 60.0),
    ("V100", 125.0, 15.7),
    ("T4", 65.0, 8.1),
)
_WITHOUT_BFLOAT16 = ("V100", "T4")

# The peak of one TPU chip in bfloat16, which a TPU uses for float32 products too; and how many units one chip counts
# for in the accelerator's type ("v3-8", "v5litepod-8").
_TPUS = {
    "v2": (46.0, 2),
    "v3": (123.0, 2),
    "v4": (275.0, 2),
    "v5litepod": (197.0, 1),
    "v5p": (459.0, 2),
    "v6e": (918.0, 1),
}
_TPU_TYPE = re.compile(r"(v\w+)-(\d+)")

# A CPU's peak is the best rate of these matrix products: their size, and whether several run at once. Small products
# stay in the cache. Several at once use all cores even where TF_NUM_INTRAOP_THREADS is 1.
_MEASURED = ((512, False), (512, True), (1024, False), (1024, True), (2048, False))
_MOST_AT_ONCE = 8
_MEASURED_SECONDS = 0.1
_FEWEST_CALLS = 3
_LONGEST_CALL = 0.3


@dataclasses.dataclass(frozen=True)
class Peak:
    """The most FLOP/s that all devices of a strategy can do together.

    Attributes:
      flops: per second.
      source: where the number comes from, for the log.
      measure: measures `flops` again; None if it is published.
    """

    flops: float
    source: str
    measure: Callable[[], float] | None = dataclasses.field(default=None, compare=False)


def training_flops(config: BertConfig, length: int, predictions: int = 0, outputs: int = 0, examples: int = 1) -> int:
    """Computes the model FLOPs of training on one row, forward and backward; a multiply-add counts as two.

    The formula counts matrix products, padding included, because padding is computed too. It leaves out operations that
    are linear in the hidden size (normalization, activations, softmax, dropout, the optimizer) and embedding lookups.
    The forward pass of a row takes:

      each of L layers   2 S (4 H^2 + 2 H I) + 4 S^2 H   projections and feed-forward; scores and their use
      masked LM          2 P (H^2 + H V)                 transform; the vocabulary
      pooled output      2 N (H^2 + H outputs)           pooler; what stands on it

    Args:
      config: shape of the encoder.
      length: S.
      predictions: P, positions at which tokens are predicted.
      outputs: outputs of the head on the pooled [CLS]; 0 if there is no such head, so the pooler is not trained.
      examples: N, places for examples in a row. Attention scores are computed, and counted, over the whole row.
    """
    hidden = config.hidden_size
    layer = 2 * length * (4 * hidden**2 + 2 * hidden * config.intermediate_size) + 4 * length**2 * hidden
    masked_lm = 2 * predictions * (hidden**2 + hidden * config.vocab_size)
    pooled = 2 * examples * (hidden**2 + hidden * outputs) if outputs else 0
    return _TRAINING_OVER_FORWARD * (config.num_hidden_layers * layer + masked_lm + pooled)


def pretraining_flops(config: BertConfig, length: int, predictions: int, outputs: int, examples: int) -> int:
    """Computes the FLOPs of a pre-training step for one row; arguments as for `training_flops`."""
    whole = training_flops(config, length, predictions, outputs, examples)
    return whole - unread_position_flops(config, length, predictions + examples)


def bilstm_flops(config: BertConfig, length: int) -> int:
    """Computes the FLOPs of training a BiLSTM of H units a direction on one row: 4 gates of 2 H inputs each."""
    return _TRAINING_OVER_FORWARD * 2 * length * 2 * 4 * 2 * config.hidden_size**2


def unread_position_flops(config: BertConfig, length: int, read: int) -> int:
    """Computes the FLOPs that `training_flops` counts for a row but a pre-training step does not need.

    The last layer is computed only at the positions that the heads read: the predicted ones and those of the pooler.
    At the others it needs only keys and values.

    Args:
      config: shape of the encoder.
      length: S.
      read: number of positions that are read; S or more for all.
    """
    hidden, unread = config.hidden_size, max(0, length - read)
    layer = 2 * unread * (2 * hidden**2 + 2 * hidden * config.intermediate_size) + 4 * unread * length * hidden
    return _TRAINING_OVER_FORWARD * layer


def peak(strategy: tf.distribute.Strategy, dtype: str) -> Peak | None:
    """Returns the peak of all devices of a strategy: published, or measured on a CPU.

    Args:
      strategy: where a model is trained.
      dtype: of the computation: float32, bfloat16 or float16.

    Returns:
      None if the device is unknown.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy):
        # only a TPU VM's environment names the type
        return tpu_peak(os.environ.get("TPU_ACCELERATOR_TYPE", ""))
    product = strategy.run(lambda: tf.matmul([[1.0]], [[1.0]]))
    here = strategy.experimental_local_results(product)
    if "GPU" not in here[0].device:
        return _cpu_peak(dtype, strategy.num_replicas_in_sync // len(here))
    gpus = tf.config.list_physical_devices("GPU")
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "") if gpus else ""
    return gpu_peak(name, dtype, strategy.num_replicas_in_sync)


def gpu_peak(name: str, dtype: str, replicas: int = 1) -> Peak | None:
    """Returns the published peak of `replicas` GPUs of one kind; None if unknown."""
    for pattern, half, single in _GPUS:
        if re.search(rf"\b{pattern}\b", name):
            if dtype == "bfloat16" and pattern in _WITHOUT_BFLOAT16:
                return None
            flops = replicas * (single if dtype == "float32" else half) * 1e12
            return Peak(flops, f"{replicas} x {name}, published for {dtype}")
    return None


def tpu_peak(accelerator_type: str) -> Peak | None:
    """Returns the published peak of a TPU slice by its type, such as "v4-32"; None if unknown."""
    match = _TPU_TYPE.fullmatch(accelerator_type)
    if not match or match[1] not in _TPUS:
        return None
    chip, per_chip = _TPUS[match[1]]
    return Peak(chip * 1e12 * int(match[2]) / per_chip, f"TPU {accelerator_type}, published for bfloat16")


def _cpu_peak(dtype: str, workers: int) -> Peak:
    # The replicas of a process share its CPU. Workers measure at the same time, so those of one machine share it too.
    source = f"the best rate of {dtype} matrix products on this CPU"
    if workers > 1:
        source += f", times {workers} workers"
    return Peak(workers * _measured_on_cpu(dtype), source, lambda: workers * _measure_on_cpu(dtype))


@functools.cache
def _measured_on_cpu(dtype: str) -> float:
    """`_measure_on_cpu`, once for a process."""
    return _measure_on_cpu(dtype)


def _measure_on_cpu(dtype: str) -> float:
    """FLOP/s of the fastest of some matrix products; takes about a second."""
    best = 0.0
    for size, several in _MEASURED:
        count = min(_usable_cores(), _MOST_AT_ONCE) if several else 1
        if best and 2 * count * size**3 / best > _LONGEST_CALL:
            continue  # a dtype that the CPU is slow in
        with tf.device("CPU:0"):  # where there are GPUs too, they would be the default
            best = max(best, _product_rate(dtype, size, count))
    return best


def _product_rate(dtype: str, size: int, count: int) -> float:
    """The best FLOP/s of `count` products of square matrices at once."""
    matrices = [tf.cast(tf.random.stateless_normal([size, size], [0, seed]), dtype) for seed in range(count)]
    products = tf.function(lambda: [tf.matmul(x, x)[0, 0] for x in matrices]).get_concrete_function()
    best, calls, end = 0.0, 0, time.monotonic() + _MEASURED_SECONDS
    # the first call starts threads, and a busy processor may hold up a single one
    while calls < _FEWEST_CALLS or time.monotonic() < end:
        start = time.perf_counter()
        for value in products():
            value.numpy()
        best, calls = max(best, 2 * count * size**3 / (time.perf_counter() - start)), calls + 1
    return best


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
