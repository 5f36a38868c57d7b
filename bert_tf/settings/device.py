"""Settings of all training scripts: devices, numerics and update rule."""

import dataclasses
import os

from bert_tf.core.command_line import check_values, hidden_modules, require, setting

# Exclusive upper bound of seeds.
SEEDS = 1 << 31


@dataclasses.dataclass(frozen=True)
class DeviceSettings:
    """Devices, numerics and update rule of a trainer; flag names from the original and from tf-models-official."""

    flag_group = "Devices"

    use_tpu: bool = setting("train on a TPU; same as --distribution_strategy=tpu", False)
    tpu_name: str = setting("name or grpc:// address of the TPU; 'local' on a TPU VM", "", alias="master")
    tpu_zone: str = setting("Google Cloud zone of the TPU, if its name does not determine it", "")
    gcp_project: str = setting("Google Cloud project of the TPU, if its name does not determine it", "")
    num_tpu_cores: int = setting("total number of TPU cores; an error if the TPU has another number", 8)
    distribution_strategy: str = setting(
        "how to distribute training over devices",
        "off",
        choices=("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu"),
    )
    num_gpus: int = setting("number of GPUs of each worker", 0, at_least=0)
    worker_hosts: str = setting(
        "multi_worker_mirrored: host:port of every worker, comma-separated, the same list on all workers; empty: read "
        "TF_CONFIG",
        "",
    )
    task_index: int = setting("multi_worker_mirrored: index of this worker in --worker_hosts, from 0", -1)
    dtype: str = setting("dtype of the computation; weights are always float32", "float32",
                         choices=("float32", "bfloat16", "float16"))  # fmt: skip
    enable_xla: bool = setting(
        "compile the forward and backward pass as one XLA program; for GPUs; always on for a TPU; slower on a CPU",
        False,
    )
    optimizer: str = setting(
        "adamw: as in the original; lamb: for very large batches", "adamw", choices=("adamw", "lamb"), group="Training"
    )
    adam_bias_correction: bool = setting(
        "apply Adam's bias correction, which the original's AdamW omits; as in TensorFlow, epsilon is added before the "
        "correction, so it weighs more in the first steps than in PyTorch",
        False,
        group="Training",
    )
    gradient_accumulation_steps: int = setting(
        "micro-batches per step and device; more micro-batches need less memory", 1, group="Training", above=0
    )
    recompute_activations: bool = setting(
        "store only the input of each layer, and recompute the layer for its gradient; slower, but needs less memory",
        False,
        group="Training",
    )
    keep_checkpoint_max: int = setting("number of the latest checkpoints to keep; 0: all", 5, group="Run", at_least=0)
    random_seed: int = setting(
        "seed of initial weights, data order and dropout", 12345, group="Training", at_least=0, below=SEEDS
    )
    deterministic: bool = setting(
        "make the same command on the same machine give the same weights to the last bit, even if the run is stopped "
        "and resumed; uses slower, deterministic operations, mostly on a GPU", False, group="Training",
    )  # fmt: skip
    skip_non_finite_steps: bool = setting(
        "skip a step whose loss or gradient is not finite, up to 10 in a row, instead of stopping; overflows of "
        "float16 are always skipped", False, group="Training",
    )  # fmt: skip

    def set_environment(self) -> None:
        """Sets the environment variables for TensorFlow, unless the user has set them, and imports TensorFlow."""
        if self.dtype == "float32":
            # oneDNN's matrix products are faster here even without AVX-512, where TensorFlow does not use them by
            # default.
            os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
        # TensorFlow and Keras would import these for data frames, images, JAX models and TPU resolvers, which takes a
        # second.
        clients = () if self.use_tpu or self.distribution_strategy == "tpu" else ("googleapiclient",)
        with hidden_modules("pandas", "scipy", "jax", *clients):
            import tensorflow  # noqa: F401
            import tf_keras  # noqa: F401

    def __post_init__(self):
        check_values(self)
        require(
            not (self.optimizer == "lamb" and self.adam_bias_correction),
            "--adam_bias_correction is for --optimizer=adamw; LAMB always corrects the bias; drop one of the flags",
        )
        is_tpu = self.use_tpu or self.distribution_strategy == "tpu"
        require(
            is_tpu or not (self.tpu_name or self.tpu_zone or self.gcp_project),
            "--tpu_name, --tpu_zone and --gcp_project need --use_tpu",
        )
        require(not (is_tpu and self.num_gpus), f"--num_gpus={self.num_gpus} contradicts a TPU; drop one of them")
        require(
            not (self.use_tpu and self.distribution_strategy not in ("off", "tpu")),
            f"--use_tpu contradicts --distribution_strategy={self.distribution_strategy}; drop one of them",
        )
        several = self.distribution_strategy == "multi_worker_mirrored"
        require(
            several or not (self.worker_hosts or self.task_index >= 0),
            "--worker_hosts and --task_index need --distribution_strategy=multi_worker_mirrored",
        )
        require(
            bool(self.worker_hosts) == (self.task_index >= 0),
            f"--worker_hosts and --task_index={self.task_index}: give both flags; the index starts at 0",
        )
        require(
            self.num_gpus <= 1 or self.distribution_strategy not in ("off", "one_device"),
            f"--num_gpus={self.num_gpus} needs --distribution_strategy=mirrored",
        )
