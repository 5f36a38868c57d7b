"""How much arithmetic a model takes by formula, and how much a device can do at most.

Model FLOP utilisation is the quotient of the two per second.

Letters: L layers, H hidden size, I intermediate size, S sequence length, P predictions, V vocabulary size, N examples
of a packed row.
"""

import dataclasses
import functools
import os
import re
import time

import tensorflow as tf

from bert_tf.config import BertConfig

# Each product with weights is done once forwards and twice backwards: for the gradients of its input and its weights.
_TRAINING_OVER_FORWARD = 3

# Published dense peaks of one GPU in 10^12 FLOP/s: (float16 and bfloat16, float32 products as TensorFlow does them,
# that is in TF32 where there is any). The first pattern that the device's name holds counts.
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

# The same of one TPU chip, in bfloat16, which float32 products are done in as well; and what the number in the
# accelerator's type ("v3-8", "v5litepod-8") counts of one chip.
_TPUS = {
    "v2": (46.0, 2),
    "v3": (123.0, 2),
    "v4": (275.0, 2),
    "v5litepod": (197.0, 1),
    "v5p": (459.0, 2),
    "v6e": (918.0, 1),
}
_TPU_TYPE = re.compile(r"(v\w+)-(\d+)")

_MEASURED_SIZES = (1024, 2048)
_MEASURED_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class Peak:
    """The most FLOP/s that the devices of a strategy can do together.

    Attributes:
      flops: per second.
      source: what the number is, for people.
    """

    flops: float
    source: str


def of_training(config: BertConfig, length: int, predictions: int = 0, outputs: int = 0, examples: int = 1) -> int:
    """Model FLOPs of training on one row: forwards and backwards, a multiply-add being two.

    Counted are matrix products, padding included, since it is computed too. Not counted are what is linear in
    the hidden size (normalisation, activations, softmax, dropout, the optimizer) and the gathers of embeddings.
    Forwards that is, of a row:

      each of L layers   2 S (4 H^2 + 2 H I) + 4 S^2 H   projections and feed-forward; scores and their use
      masked LM          2 P (H^2 + H V)                 transform; the vocabulary
      pooled output      2 N (H^2 + H outputs)           pooler; what stands on it

    Args:
      config: shape of the encoder.
      length: S.
      predictions: P, positions at which pieces are predicted.
      outputs: outputs of the head on the pooled [CLS]; 0 for no such head, whose pooler is not trained then.
      examples: N, places for examples in a row; their scores are computed whole, and counted so.
    """
    hidden = config.hidden_size
    layer = 2 * length * (4 * hidden**2 + 2 * hidden * config.intermediate_size) + 4 * length**2 * hidden
    masked_lm = 2 * predictions * (hidden**2 + hidden * config.vocab_size)
    pooled = 2 * examples * (hidden**2 + hidden * outputs) if outputs else 0
    return _TRAINING_OVER_FORWARD * (config.num_hidden_layers * layer + masked_lm + pooled)


def of_unread_positions(config: BertConfig, length: int, read: int) -> int:
    """What `of_training` counts of a row but a step of pre-training does not do.

    The last layer is computed where it is read, at the positions predicted and at those that the pooler reads; of the
    others it needs keys and values alone.

    Args:
      config: shape of the encoder.
      length: S.
      read: how many positions are read; S or more for all.
    """
    hidden, unread = config.hidden_size, max(0, length - read)
    layer = 2 * unread * (2 * hidden**2 + 2 * hidden * config.intermediate_size) + 4 * unread * length * hidden
    return _TRAINING_OVER_FORWARD * layer


def peak(strategy: tf.distribute.Strategy, dtype: str) -> Peak | None:
    """What the devices of a strategy can do together: published, or on a CPU measured.

    Args:
      strategy: where a model is trained.
      dtype: of the computation: float32, bfloat16 or float16.

    Returns:
      None where the device is not known.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy):
        # a TPU VM says it; nothing else does
        return tpu_peak(os.environ.get("TPU_ACCELERATOR_TYPE", ""))
    product = strategy.run(lambda: tf.matmul([[1.0]], [[1.0]]))
    if "GPU" not in strategy.experimental_local_results(product)[0].device:
        # replicas on one CPU share it
        return Peak(_measured_on_cpu(dtype), f"what a large {dtype} matrix product reaches on this CPU")
    gpus = tf.config.list_physical_devices("GPU")
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "") if gpus else ""
    return gpu_peak(name, dtype, strategy.num_replicas_in_sync)


def gpu_peak(name: str, dtype: str, replicas: int = 1) -> Peak | None:
    """Published peak of some GPUs of one kind; None where it is not known."""
    for pattern, half, single in _GPUS:
        if re.search(rf"\b{pattern}\b", name):
            if dtype == "bfloat16" and pattern in _WITHOUT_BFLOAT16:
                return None
            flops = replicas * (single if dtype == "float32" else half) * 1e12
            return Peak(flops, f"{replicas} x {name}, published for {dtype}")
    return None


def tpu_peak(accelerator_type: str) -> Peak | None:
    """Published peak of a TPU slice by its type, as "v4-32"; None where it is not known."""
    match = _TPU_TYPE.fullmatch(accelerator_type)
    if not match or match[1] not in _TPUS:
        return None
    chip, per_chip = _TPUS[match[1]]
    return Peak(chip * 1e12 * int(match[2]) / per_chip, f"TPU {accelerator_type}, published for bfloat16")


@functools.cache
def _measured_on_cpu(dtype: str) -> float:
    """FLOP/s of the quickest of some large matrix products, in a fraction of a second."""
    best, end = 0.0, time.monotonic() + _MEASURED_SECONDS
    for size in _MEASURED_SIZES:
        matrix = tf.cast(tf.random.stateless_normal([size, size], [0, 1]), dtype)
        product = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)))
        product(matrix)  # the first call traces
        while True:
            start = time.monotonic()
            product(matrix).numpy()
            best = max(best, 2 * size**3 / (time.monotonic() - start))
            if time.monotonic() > end:
                break
        end += _MEASURED_SECONDS / 2
        if 2 * _MEASURED_SIZES[-1] ** 3 / best > _MEASURED_SECONDS:
            break  # a dtype that the CPU is slow in
    return best
