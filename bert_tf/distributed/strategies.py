"""Makes the distribution strategy that the device flags describe, and checks that replicas can share the batches."""

import contextlib
import ctypes
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.core.errors import InputError
from bert_tf.distributed import workarounds, workers
from bert_tf.modeling.precision import policy_name
from bert_tf.settings import DeviceSettings, FineTuningSettings, PretrainingSettings

_Settings = TypeVar("_Settings", bound=DeviceSettings)
# The first flag keeps XLA from compiling and timing hundreds of kernels for each matrix product, which takes minutes:
# the kernels of NVIDIA's library are as fast. The second flag keeps TensorFlow from storing the counters of dropout
# masks as constants.
_GPU_ENVIRONMENT = {
    "XLA_FLAGS": "--xla_gpu_enable_triton_gemm=false",
    "TF_XLA_FLAGS": "--tf_xla_disable_constant_folding=true",
}
# The compute capability of NVIDIA's first GPUs with bfloat16 matrix products.
_FIRST_WITH_BFLOAT16 = (8, 0)


def with_devices(settings: _Settings) -> _Settings:
    """Returns the settings with `num_gpus` and `enable_xla` filled in: by default, the machine's GPUs and XLA on them.
    Call this function before any computation. If the settings have no GPU, TensorFlow cannot use one afterwards."""
    gpus = tf.config.list_physical_devices("GPU")
    kind, number = settings.distribution_strategy, settings.num_gpus
    if settings.use_tpu or kind == "tpu":
        return dataclasses.replace(settings, num_gpus=0, enable_xla=bool(settings.enable_xla))
    if number is None:
        number = len(gpus) if kind in ("mirrored", "multi_worker_mirrored") else min(len(gpus), 1)
    if number > len(gpus):
        advice = f"give a number up to {len(gpus)}" if gpus else "drop the flag to use the CPU"
        raise InputError(f"--num_gpus={number}: TensorFlow finds {len(gpus)} GPUs on this machine; {advice}")
    if number:
        logging.info("%s", _gpus_in_words(gpus, number, settings))
        for name, value in _GPU_ENVIRONMENT.items():  # TensorFlow reads these variables when it first compiles
            os.environ.setdefault(name, value)
    elif gpus:
        with contextlib.suppress(RuntimeError):  # an earlier run of this process used them
            tf.config.set_visible_devices([], "GPU")
    xla = bool(number) if settings.enable_xla is None else settings.enable_xla
    return dataclasses.replace(settings, num_gpus=number, enable_xla=xla)


def _gpus_in_words(gpus: Sequence[tf.config.PhysicalDevice], number: int, settings: DeviceSettings) -> str:
    """Describes the GPUs that a run uses, and the flags that would use them better."""
    details = tf.config.experimental.get_device_details(gpus[0])
    memory = _gpu_memory()
    size = f" with {memory / 2**30:.0f} GiB" if memory else ""
    parts = [f"using {number} x {details.get('device_name', 'GPU')}{size}"]
    if settings.dtype == "float32" and details.get("compute_capability", (0, 0)) >= _FIRST_WITH_BFLOAT16:
        parts.append("--dtype=bfloat16 is faster")
    if len(gpus) > number:
        parts.append(f"--distribution_strategy=mirrored uses all {len(gpus)} GPUs")
    return "; ".join(parts)


def _gpu_memory() -> int:
    """Returns the size of the first GPU's memory in bytes, or 0 if unknown; TensorFlow does not provide it."""
    size, device = ctypes.c_size_t(), ctypes.c_int()
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuInit(0)
        driver.cuDeviceGet(ctypes.byref(device), 0)
        driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    return size.value


def make_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    """Makes the strategy that the device flags describe, and sets the dtype policy. Call this function before any
    computation, because TensorFlow cannot connect workers after a computation.
    `settings`: settings from `with_devices`."""
    workarounds.silence_compilation_messages()
    workarounds.keep_freed_memory()
    workarounds.end_iterators_at_once()
    keras.mixed_precision.set_global_policy(policy_name(settings.dtype))
    kind = "tpu" if settings.use_tpu else settings.distribution_strategy
    if kind != "multi_worker_mirrored" and os.environ.get("TF_CONFIG"):
        logging.warning(
            "ignoring TF_CONFIG, which needs --distribution_strategy=multi_worker_mirrored; only this machine trains"
        )
    if kind == "tpu":
        return _tpu_strategy(settings)
    num_gpus = settings.num_gpus or 0
    if kind == "multi_worker_mirrored":
        return workers.join(settings, num_gpus)
    if kind == "mirrored":
        return _mirrored_strategy(num_gpus)
    if kind == "one_device" or num_gpus:
        return tf.distribute.OneDeviceStrategy("GPU:0" if num_gpus else "CPU:0")
    return tf.distribute.get_strategy()


def _mirrored_strategy(num_gpus: int) -> tf.distribute.Strategy:
    if num_gpus:
        return tf.distribute.MirroredStrategy([f"GPU:{index}" for index in range(num_gpus)])
    devices = [f"CPU:{index}" for index in range(len(tf.config.list_logical_devices("CPU")))]
    # All replicas share the memory of one process, so they do not need collective operations.
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())


def _tpu_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    name = settings.tpu_name
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=settings.tpu_zone or None, project=settings.gcp_project or None
        )
        if name not in ("", "local"):
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError, OSError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"--tpu_name={name}: cannot reach the TPU ({reason}); check its name and zone") from error
    return tf.distribute.TPUStrategy(resolver)


def distribute(
    strategy: tf.distribute.Strategy, make_batches: Callable[[tf.distribute.InputContext], tf.data.Dataset]
) -> tf.distribute.DistributedDataset:
    """Distributes the batches that a function makes for each worker; see `tf.distribute`."""
    # One device fetches a batch itself: a compiled step takes integers from the host's memory. If a GPU had them, each
    # step would copy them back, and the copy would wait for the previous step.
    fetch = not isinstance(strategy, tf.distribute.OneDeviceStrategy)
    options = tf.distribute.InputOptions(experimental_fetch_to_device=fetch)
    return strategy.distribute_datasets_from_function(make_batches, options)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes the run's files. Of several workers, only the first worker writes files."""
    return strategy.extended.should_checkpoint


def check_python_input(
    strategy: tf.distribute.Strategy,
    settings: DeviceSettings,
    dynamic_masking: bool = False,
    pack_sequences: bool = False,
    reading_flag: str = "",
) -> None:
    """Refuses dynamic masking, packing and reading stored rows if the input pipeline would run on another machine.
    These three operations run in Python, in this process.
    `reading_flag`: the flag because of which stored rows are read; "" if none are read."""
    if not isinstance(strategy, tf.distribute.TPUStrategy):
        return
    if strategy.extended.num_hosts == 1 and settings.tpu_name in ("", "local"):
        return
    where = "runs in Python, so with a TPU it works only on a local TPU on one machine"
    if dynamic_masking:
        raise InputError(f"--input_file: dynamic masking {where}; make the data again without --masking=dynamic")
    if pack_sequences:
        raise InputError(f"--pack_sequences: packing {where}; remove the flag")
    if reading_flag:
        raise InputError(f"--{reading_flag}: reading stored values {where}; train on such a TPU, on a GPU or on a CPU")


def check_batch_sizes(strategy: tf.distribute.Strategy, settings: PretrainingSettings | FineTuningSettings) -> None:
    """Checks the batch sizes of the requested actions; see `check_batch_size`."""
    if settings.do_train:
        check_batch_size(strategy, settings.gradient_accumulation_steps, train_batch_size=settings.train_batch_size)
    if settings.do_eval:
        check_batch_size(strategy, eval_batch_size=settings.eval_batch_size)
    if getattr(settings, "do_predict", False):
        check_batch_size(strategy, predict_batch_size=settings.predict_batch_size)


def check_batch_size(strategy: tf.distribute.Strategy, micro_batches: int = 1, **batch_sizes: int) -> None:
    """Checks that a global batch divides evenly among the replicas and their micro-batches.
    `strategy`: the strategy, which determines the number of replicas.
    `micro_batches`: number of micro-batches per replica and step.
    `**batch_sizes`: global batch sizes in rows; the keys are the names of the flags."""
    replicas = strategy.num_replicas_in_sync
    for flag, size in batch_sizes.items():
        if size % (replicas * micro_batches):
            factors = f"{replicas} replicas" + (f" times {micro_batches} micro-batches" if micro_batches > 1 else "")
            raise InputError(f"--{flag}={size}: must be a multiple of {replicas * micro_batches} ({factors})")
