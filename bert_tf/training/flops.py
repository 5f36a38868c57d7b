"""Computes the FLOPs of a training step by formula, and finds the peak FLOP/s of a device.

Model FLOP utilization is the number of FLOPs per second in training, divided by the peak.

Letters: N examples in a packed row.
"""

import dataclasses
import os
import re

import tensorflow as tf

from bert_tf.config import BertConfig

# For each product in the forward pass, the backward pass computes two: the gradients of the input and of the weights.
_TRAINING_OVER_FORWARD = 3

# Published dense peaks of one GPU in 10^12 FLOP/s: first for float16 and bfloat16, then for float32. For float32,
# TensorFlow uses TF32 if the GPU supports it. The first entry whose name occurs in the device's name applies.
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

# For each TPU generation: the peak of one chip in 10^12 bfloat16 FLOP/s, and the number of units per chip. The number
# in an accelerator type such as "v3-8" or "v5litepod-8" counts these units. A TPU also computes float32 products in
# bfloat16.
_TPUS = {
    "v2": (46.0, 2),
    "v3": (123.0, 2),
    "v4": (275.0, 2),
    "v5litepod": (197.0, 1),
    "v5p": (459.0, 2),
    "v6e": (918.0, 1),
}
_TPU_TYPE = re.compile(r"(v\w+)-(\d+)")


@dataclasses.dataclass(frozen=True)
class Peak:
    """The peak FLOP/s of all devices of a strategy together."""

    flops: float  # FLOPs per second
    source: str  # origin of the number, for the log


def training_flops(config: BertConfig, length: int, predictions: int = 0, outputs: int = 0, examples: int = 1) -> int:
    """Computes the model FLOPs of the forward and backward pass of one row; a multiply-add is two FLOPs. The formula
    counts matrix products. Products with padding count too, because the device computes them. The formula omits
    embedding lookups and operations that are linear in the hidden size (normalization, activations, softmax, dropout,
    the optimizer). The forward pass of a row takes:
      each of L layers   2 S (4 H^2 + 2 H I) + 4 S^2 H   projections and feed-forward; scores and contexts
      masked LM          2 P (H^2 + H V)                 transform; logits of the vocabulary
      pooled output      2 N (H^2 + H outputs)           pooler; head
    `length`: S, number of tokens in the row.
    `predictions`: P, number of positions at which tokens are predicted.
    `outputs`: number of outputs of the head on the pooled output; 0 if there is no such head. Without such a head, the
      pooler is not trained.
    `examples`: N, the maximum number of examples in a row. Attention scores are computed, and counted, over the whole
      row."""
    hidden = config.hidden_size
    layer = 2 * length * (4 * hidden**2 + 2 * hidden * config.intermediate_size) + 4 * length**2 * hidden
    pooled = 2 * examples * (hidden**2 + hidden * outputs) if outputs else 0
    encoder = _TRAINING_OVER_FORWARD * (config.num_hidden_layers * layer + pooled)
    return encoder + prediction_flops(config, predictions)


def prediction_flops(config: BertConfig, predictions: int) -> int:
    """Computes the FLOPs of training the language model's head at a number of positions; see `training_flops`."""
    return _TRAINING_OVER_FORWARD * 2 * predictions * (config.hidden_size**2 + config.hidden_size * config.vocab_size)


def pretraining_flops(config: BertConfig, length: int, predictions: int, outputs: int, examples: int) -> int:
    """Computes the FLOPs of a pre-training step for one row; for the arguments, see `training_flops`."""
    whole = training_flops(config, length, predictions, outputs, examples)
    return whole - unread_position_flops(config, length, predictions + examples)


def bilstm_flops(config: BertConfig, length: int) -> int:
    """Computes the FLOPs of training a BiLSTM with H units per direction on one row: 4 gates with 2 H inputs each."""
    return _TRAINING_OVER_FORWARD * 2 * length * 2 * 4 * 2 * config.hidden_size**2


def unread_position_flops(config: BertConfig, length: int, read: int) -> int:
    """Computes the FLOPs that `training_flops` counts for a row although pre-training does not need them. Pre-training
    computes the last layer only at the positions that the heads read: the masked positions and the positions of the
    pooler. At other positions, it computes only keys and values.
    `length`: S, number of tokens in the row.
    `read`: number of positions that the heads read; S or more for all positions."""
    hidden, unread = config.hidden_size, max(0, length - read)
    layer = 2 * unread * (2 * hidden**2 + 2 * hidden * config.intermediate_size) + 4 * unread * length * hidden
    return _TRAINING_OVER_FORWARD * layer


def peak(strategy: tf.distribute.Strategy, dtype: str) -> Peak | None:
    """Returns the published peak of all devices of a strategy; None if it is unknown, as for every CPU.
    `dtype`: compute dtype: float32, bfloat16 or float16."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        # TensorFlow does not provide the accelerator's type, but a TPU VM sets this environment variable.
        return tpu_peak(os.environ.get("TPU_ACCELERATOR_TYPE", ""))
    product = strategy.run(lambda: tf.matmul([[1.0]], [[1.0]]))
    if "GPU" not in strategy.experimental_local_results(product)[0].device:
        return None
    gpus = tf.config.list_physical_devices("GPU")
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "") if gpus else ""
    return gpu_peak(name, dtype, strategy.num_replicas_in_sync)


def gpu_peak(name: str, dtype: str, replicas: int = 1) -> Peak | None:
    """Returns the published peak of `replicas` GPUs of one kind; None if unknown, or for a part of a GPU (MIG)."""
    if "MIG" in name:
        return None
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
