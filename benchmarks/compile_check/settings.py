"""Settings of `compile_check`: every field is a flag."""

import dataclasses

from benchmarks.compile_check.chips import CHIPS
from bert_tf.core.command_line import Settings, require, setting


@dataclasses.dataclass(frozen=True)
class CompileCheckSettings(Settings):
    """The models to compile, and the chips. The flags of the model and the batch are named as in `run_pretraining`."""

    flag_group = "Training"

    bert_config_file: str = setting(
        "configuration of the model; empty: base with 128 and 512 tokens, and large with 512 tokens", "", group="Model"
    )
    train_batch_size: int = setting("number of rows per batch on one chip", 32, above=0)
    max_seq_length: int = setting("length of a row in tokens", 128, above=0)
    max_predictions_per_seq: int = setting("number of masked positions per row", 20, above=0)
    dtype: str = setting("dtype of the computation", "bfloat16", choices=("float32", "bfloat16"))
    optimizer: str = setting("optimizer of the step", "adamw", choices=("adamw", "lamb"))
    recompute_activations: bool = setting("store only the input of each layer for the backward pass", False)
    chips: str = setting(f"names of chips, comma-separated: {', '.join(CHIPS)}", "v5e,v4", group="Devices")
    tpu_compiler: str = setting(
        "path of a Python with the TPU compiler, which `make tpu-check` installs", ".venv-tpu/bin/python",
        group="Devices",
    )  # fmt: skip
    gpu_compiler: str = setting(
        "path of a Python with the GPU compiler, which `make gpu-check` installs", ".venv-gpu/bin/python",
        group="Devices",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        unknown = [name for name in self.chips.split(",") if name not in CHIPS]
        require(not unknown, f"--chips={self.chips}: must be names from {', '.join(CHIPS)}, separated by commas")
