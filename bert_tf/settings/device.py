"""Settings of all training scripts: devices, numerics and update rule."""

import dataclasses
import os

from bert_tf.core.command_line import Settings, hidden_modules, require, setting

# Exclusive upper bound of seeds.
SEEDS = 1 << 31
_TPU, _WORKERS = "use_tpu or distribution_strategy=tpu", "distribution_strategy=multi_worker_mirrored"
BIAS_CORRECTION = (
    "correct the bias of Adam's moments, and use an epsilon of 1e-8, as in Adam's paper and in PyTorch; otherwise, "
    "neither, and an epsilon of 1e-6, as in google-research/bert"
)
DECAY_AFTER_WARMUP = (
    "let the learning rate fall to 0 along the line from its peak at the end of the warm-up; otherwise, along the line "
    "from the peak at step 0 as in google-research/bert, so that the rate never reaches --learning_rate"
)


@dataclasses.dataclass(frozen=True)
class DeviceSettings(Settings):
    """Devices, numerics and update rule of a training script. The names of the flags are those of google-research/bert
    and tf-models-official."""

    flag_group = "Devices"

    use_tpu: bool = setting("train on a TPU; same as --distribution_strategy=tpu", False)
    tpu_name: str = setting("name or grpc:// address; 'local' on a TPU VM", "", alias="master", only_with=_TPU)
    tpu_zone: str = setting("Google Cloud zone, if the TPU's name does not determine it", "", only_with=_TPU)
    gcp_project: str = setting("Google Cloud project, if the TPU's name does not determine it", "", only_with=_TPU)
    num_tpu_cores: int = setting("ignored; the TPU decides the number of its cores", 8)
    distribution_strategy: str = setting(
        "how to distribute training over devices", "off",
        choices=("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu"),
    )  # fmt: skip
    num_gpus: int | None = setting(
        "number of GPUs that each worker uses; 0: the CPU; default: one GPU if there is one, and with mirrored and "
        "multi_worker_mirrored all GPUs of the machine", None, at_least=0,
    )  # fmt: skip
    worker_hosts: str = setting(
        "host:port of every worker, comma-separated; all workers need the same list; empty: read TF_CONFIG", "",
        only_with=_WORKERS,
    )  # fmt: skip
    task_index: int = setting("index of this worker in --worker_hosts, from 0", -1, per_worker=True, only_with=_WORKERS)
    dtype: str = setting("dtype of the computation; the weights are always float32", "float32",
                         choices=("float32", "bfloat16", "float16"))  # fmt: skip
    enable_xla: bool | None = setting(
        "compile the training step with XLA; default: on GPUs, where it is faster, and not on CPUs, where it is "
        "slower; always on for a TPU", None,
    )  # fmt: skip
    optimizer: str = setting(
        "adamw: Adam as in google-research/bert; lamb: LAMB, for very large batches", "adamw",
        choices=("adamw", "lamb"), group="Training",
    )  # fmt: skip
    adam_bias_correction: bool = setting(BIAS_CORRECTION, False, group="Training")
    decay_after_warmup: bool = setting(DECAY_AFTER_WARMUP, False, group="Training")
    gradient_accumulation_steps: int = setting(
        "number of micro-batches per step and device; more micro-batches need less memory", 1, group="Training", above=0
    )
    recompute_activations: bool = setting(
        "store only the input of each layer, and recompute the layer in the backward pass; slower, but needs less "
        "memory", False, group="Training",
    )  # fmt: skip
    keep_checkpoint_max: int = setting("number of the latest checkpoints to keep; 0: all", 5, group="Run", at_least=0)
    random_seed: int = setting(
        "seed of initial weights, data order and dropout", 12345, group="Training", at_least=0, below=SEEDS
    )
    deterministic: bool = setting(
        "produce bit-identical weights whenever the same command runs on the same machine, even if the run is stopped "
        "and resumed; slower, above all on a GPU, because all operations are deterministic", False, group="Training",
    )  # fmt: skip
    skip_non_finite_steps: bool = setting(
        "skip a step whose loss or gradient is not finite, up to 10 steps in a row, instead of stopping; steps that "
        "overflow in float16 are always skipped", False, group="Training",
    )  # fmt: skip

    def set_environment(self) -> None:
        """Sets the environment variables for TensorFlow, unless the user has set them, and imports TensorFlow."""
        if self.dtype == "float32":
            # oneDNN's float32 matrix products are faster even on processors without AVX-512, for which TensorFlow
            # does not enable oneDNN by default.
            os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
        # TensorFlow and Keras would import these modules for data frames, images, JAX models and TPU resolvers. These
        # imports would take a second.
        clients = () if self.use_tpu or self.distribution_strategy == "tpu" else ("googleapiclient",)
        with hidden_modules("pandas", "scipy", "jax", *clients):
            import tensorflow  # noqa: F401
            import tf_keras  # noqa: F401

    def __post_init__(self):
        super().__post_init__()
        require(
            (self.num_gpus or 0) <= 1 or self.distribution_strategy not in ("off", "one_device"),
            f"--num_gpus={self.num_gpus} needs --distribution_strategy=mirrored",
        )
