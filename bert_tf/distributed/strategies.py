"""Makes the distribution strategy that the device flags describe, and checks that replicas can share the batches."""

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator

import tensorflow as tf
import tf_keras as keras
from absl import logging
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.framework import config

from bert_tf.core.datasets import without_autotune
from bert_tf.core.errors import InputError
from bert_tf.distributed import workers
from bert_tf.modeling.precision import policy_name
from bert_tf.settings import DeviceSettings, FineTuningSettings, PretrainingSettings

# Options of glibc's `mallopt`.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_MAKE_DEVICE_DATASET = "_create_device_dataset"
# The mangled name of absl::SetMinLogLevel in TensorFlow's library.
_SET_MIN_LOG_LEVEL = "_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE"


def make_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    """Makes the strategy that the device flags describe; sets the dtype policy and turns XLA on or off for the process.

    Call this function before any computation, because TensorFlow cannot connect workers after a computation.
    """
    silence_compilation_messages()
    _keep_freed_memory()
    _end_iterators_at_once()
    keras.mixed_precision.set_global_policy(policy_name(settings.dtype))
    tf.config.optimizer.set_jit(settings.enable_xla)
    kind = "tpu" if settings.use_tpu else settings.distribution_strategy
    if kind != "multi_worker_mirrored" and os.environ.get("TF_CONFIG"):
        logging.warning(
            "ignoring TF_CONFIG, which needs --distribution_strategy=multi_worker_mirrored; only this machine trains"
        )
    if kind == "tpu":
        return _tpu_strategy(settings)
    gpus = _gpus(settings)
    if kind == "multi_worker_mirrored":
        return workers.join(settings, len(gpus))
    if kind == "mirrored":
        return _mirrored_strategy(len(gpus))
    if kind == "one_device":
        return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    return tf.distribute.get_strategy()


@contextlib.contextmanager
def deterministic_operations(wanted: bool) -> Iterator[None]:
    """Turns on deterministic operations if `wanted`, and restores the previous state for later runs in the process."""
    is_set_here = wanted and not config.is_op_determinism_enabled()
    if is_set_here:
        config.enable_op_determinism()
    try:
        yield
    finally:
        if is_set_here:
            config.disable_op_determinism()  # TensorFlow has no public function for this


def _keep_freed_memory() -> None:
    """Lets glibc keep freed memory for the next step, instead of returning the memory to the operating system.

    A step allocates and frees gradients, activations and new weights. By default, glibc returns large blocks
    immediately, and the operating system clears each block before it provides the block again. The clearing can take a
    quarter of a step. The function has no effect with other C libraries, or if the user has set one of glibc's options
    in the environment.
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ:
        return
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - fails with other C libraries
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def _end_iterators_at_once() -> None:
    """Applies `without_autotune` to the dataset that a strategy creates for each device.

    TensorFlow has no interface for the options of this dataset, so a function of TensorFlow is replaced. If a version
    of TensorFlow creates the dataset with another function, ending an iterator may take up to a minute.
    """
    make = getattr(multi_device_iterator_ops, _MAKE_DEVICE_DATASET, None)
    if make and not hasattr(make, "__wrapped__"):
        made = functools.wraps(make)(lambda *args, **options: without_autotune(make(*args, **options)))
        setattr(multi_device_iterator_ops, _MAKE_DEVICE_DATASET, made)


def silence_compilation_messages() -> None:
    """Applies TF_CPP_MIN_LOG_LEVEL to the messages that TensorFlow's compilers print through Abseil.

    TensorFlow 2.20 does not apply the variable to these messages, and has no interface for their level. With other
    versions of TensorFlow, this function has no effect.
    """
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0")
    framework = os.path.join(os.path.dirname(tf.__file__), "libtensorflow_framework.so.2")
    with contextlib.suppress(OSError, AttributeError):
        # Set at most level 2, because higher levels hide errors.
        ctypes.CDLL(framework)[_SET_MIN_LOG_LEVEL](min(int(level), 2) if level.isdecimal() else 0)


def _gpus(settings: DeviceSettings) -> list[tf.config.PhysicalDevice]:
    available = tf.config.list_physical_devices("GPU")
    if settings.num_gpus > len(available):
        raise InputError(
            f"--num_gpus={settings.num_gpus}: TensorFlow finds {len(available)} GPUs on this machine; give a number "
            f"up to {len(available)}"
        )
    if available and not settings.num_gpus and settings.distribution_strategy != "off":
        logging.warning("training on the CPU; --num_gpus=%d uses the GPUs of this machine", len(available))
    return available[: settings.num_gpus]


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


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes the run's files. Of several workers, only the first worker writes files."""
    return strategy.extended.should_checkpoint


def check_python_input(
    strategy: tf.distribute.Strategy,
    settings: DeviceSettings,
    dynamic_masking: bool = False,
    pack_sequences: bool = False,
    activations: bool = False,
) -> None:
    """Refuses dynamic masking, packing and reading activations if the input pipeline would run on another machine.

    These three operations run in Python, in this process.
    """
    if not isinstance(strategy, tf.distribute.TPUStrategy):
        return
    if strategy.extended.num_hosts == 1 and settings.tpu_name in ("", "local"):
        return
    where = "runs in Python, so with a TPU it works only on a local TPU on one machine"
    if dynamic_masking:
        raise InputError(f"--input_file: dynamic masking {where}; make the data again without --masking=dynamic")
    if pack_sequences:
        raise InputError(f"--pack_sequences: packing {where}; remove the flag")
    if activations:
        raise InputError(f"--feature_layers: reading activations {where}; train on such a TPU, on a GPU or on a CPU")


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

    Args:
      strategy: the strategy, which determines the number of replicas.
      micro_batches: number of micro-batches per replica and step.
      **batch_sizes: global batch sizes in rows; the keys are the names of the flags.
    """
    replicas = strategy.num_replicas_in_sync
    for flag, size in batch_sizes.items():
        if size % (replicas * micro_batches):
            parts = f"{replicas} replicas" + (f" times {micro_batches} micro-batches" if micro_batches > 1 else "")
            raise InputError(f"--{flag}={size}: must be a multiple of {replicas * micro_batches} ({parts})")
