"""Where a model is trained: the strategy that the device flags describe."""

import tensorflow as tf
import tf_keras as keras
from absl import logging
from official.common import distribute_utils

from bert_tf.settings import DeviceSettings
from tfrecords.errors import InputError


def make_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    """The strategy that the device flags describe; also sets dtype policy, XLA and determinism for the process.

    Raises:
      InputError: the devices are not there.
    """
    keras.mixed_precision.set_global_policy("float32" if settings.dtype == "float32" else f"mixed_{settings.dtype}")
    if settings.distribution_strategy == "multi_worker_mirrored":
        raise InputError("--distribution_strategy=multi_worker_mirrored: not yet; use mirrored on one machine")
    tf.config.optimizer.set_jit(settings.enable_xla)
    if settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    gpus = len(tf.config.list_physical_devices("GPU"))
    if settings.num_gpus > gpus:
        raise InputError(f"--num_gpus={settings.num_gpus}: TensorFlow finds {gpus} on this machine")
    if gpus and not settings.num_gpus and settings.distribution_strategy in ("one_device", "mirrored"):
        logging.warning("training on the CPU; --num_gpus=%d uses the GPUs of this machine", gpus)
    if settings.use_tpu or settings.distribution_strategy == "tpu":
        return _tpu_strategy(settings)
    return distribute_utils.get_distribution_strategy(settings.distribution_strategy, num_gpus=settings.num_gpus)


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


def check_batch_size(strategy: tf.distribute.Strategy, **batch_sizes: int) -> None:
    """Refuses a global batch that the replicas cannot share equally.

    Raises:
      InputError: names the flag and the number of replicas.
    """
    replicas = strategy.num_replicas_in_sync
    for flag, size in batch_sizes.items():
        if size % replicas:
            raise InputError(f"--{flag}={size}: must be a multiple of the {replicas} replicas")
