"""Where a model is trained: the strategy that the device flags describe."""

import os

import tensorflow as tf
import tf_keras as keras
from absl import logging

from bert_tf.distributed import workers
from bert_tf.settings import ClassifierSettings, DeviceSettings, PretrainingSettings
from tfrecords.errors import InputError


def make_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    """The strategy that the device flags describe; also sets dtype policy, XLA and determinism for the process.

    A process makes it before it computes anything: several workers find each other only then.

    Raises:
      InputError: the devices or the other workers are not there.
    """
    keras.mixed_precision.set_global_policy("float32" if settings.dtype == "float32" else f"mixed_{settings.dtype}")
    tf.config.optimizer.set_jit(settings.enable_xla)
    if settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    kind = "tpu" if settings.use_tpu else settings.distribution_strategy
    if kind != "multi_worker_mirrored" and os.environ.get("TF_CONFIG"):
        logging.warning("TF_CONFIG plays no part without --distribution_strategy=multi_worker_mirrored; training alone")
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


def _gpus(settings: DeviceSettings) -> list[tf.config.PhysicalDevice]:
    """The GPUs of this machine that the flags ask for."""
    there = tf.config.list_physical_devices("GPU")
    if settings.num_gpus > len(there):
        raise InputError(f"--num_gpus={settings.num_gpus}: TensorFlow finds {len(there)} on this machine")
    if there and not settings.num_gpus and settings.distribution_strategy != "off":
        logging.warning("training on the CPU; --num_gpus=%d uses the GPUs of this machine", len(there))
    return there[: settings.num_gpus]


def _mirrored_strategy(num_gpus: int) -> tf.distribute.Strategy:
    if num_gpus:
        return tf.distribute.MirroredStrategy([f"GPU:{index}" for index in range(num_gpus)])
    devices = [f"CPU:{index}" for index in range(len(tf.config.list_logical_devices("CPU")))]
    # one process's memory holds all replicas; collective ops, which machines need, would only be in the way
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())


def _tpu_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    name = settings.tpu_name or settings.master
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=settings.tpu_zone or None, project=settings.gcp_project or None
        )
        if name not in ("", "local"):
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError, OSError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"--tpu_name={name}: no TPU can be reached ({reason}); check name and zone") from error
    strategy = tf.distribute.TPUStrategy(resolver)
    if strategy.num_replicas_in_sync != settings.num_tpu_cores:
        raise InputError(
            f"--num_tpu_cores={settings.num_tpu_cores}: the TPU has {strategy.num_replicas_in_sync} cores; "
            "give that number"
        )
    return strategy


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the run's files: of several workers only the first does."""
    return strategy.extended.should_checkpoint


def check_python_input(
    strategy: tf.distribute.Strategy, settings: DeviceSettings, dynamic_masking: bool, pack_sequences: bool
) -> None:
    """Refuses rows that Python masks or packs where other machines than this one would have to make them.

    Raises:
      InputError: says what to do without.
    """
    if not isinstance(strategy, tf.distribute.TPUStrategy):
        return
    if strategy.extended.num_hosts == 1 and (settings.tpu_name or settings.master) in ("", "local"):
        return
    where = "is done by Python on the machine of the TPU itself, not by a TPU over the network or of several machines"
    if dynamic_masking:
        raise InputError(
            f"--input_file: masking when rows are read {where}; make the data again without --masking=dynamic"
        )
    if pack_sequences:
        raise InputError(f"--pack_sequences: packing {where}; leave it out")


def check_batch_sizes(strategy: tf.distribute.Strategy, settings: PretrainingSettings | ClassifierSettings) -> None:
    """Refuses batch sizes that the replicas cannot share equally, of what the settings ask to be done.

    Raises:
      InputError: see `check_batch_size`.
    """
    if settings.do_train:
        check_batch_size(strategy, settings.gradient_accumulation_steps, train_batch_size=settings.train_batch_size)
    if settings.do_eval:
        check_batch_size(strategy, eval_batch_size=settings.eval_batch_size)
    if getattr(settings, "do_predict", False):
        check_batch_size(strategy, predict_batch_size=settings.predict_batch_size)


def check_batch_size(strategy: tf.distribute.Strategy, micro_batches: int = 1, **batch_sizes: int) -> None:
    """Refuses a global batch that the replicas and their micro-batches cannot share equally.

    Args:
      strategy: gives the number of replicas.
      micro_batches: that each replica's share is worked through in.
      **batch_sizes: rows by the name of their flag.

    Raises:
      InputError: names the flag and what the rows must be shared by.
    """
    replicas = strategy.num_replicas_in_sync
    for flag, size in batch_sizes.items():
        if size % (replicas * micro_batches):
            parts = f"{replicas} replicas" + (f" times {micro_batches} micro-batches" if micro_batches > 1 else "")
            raise InputError(f"--{flag}={size}: must be a multiple of the {parts}")
