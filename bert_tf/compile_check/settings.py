"""Settings of compile_check; every field is a flag."""

import dataclasses

from bert_tf.compile_check.chips import CHIPS
from bert_tf.core.command_line import check_values, require, setting


@dataclasses.dataclass(frozen=True)
class CompileCheckSettings:
    """The models and chips to compile for; names as in `run_pretraining`."""

    flag_group = "Training"

    bert_config_file: str = setting(
        "configuration of the model; empty: base at S=128 and 512, large at S=512", "", group="Model"
    )
    train_batch_size: int = setting("batch size in rows on one chip", 32, above=0)
    max_seq_length: int = setting("sequence length in tokens", 128, above=0)
    max_predictions_per_seq: int = setting("number of masked positions per sequence", 20, above=0)
    dtype: str = setting("compute dtype", "bfloat16", choices=("float32", "bfloat16"))
    optimizer: str = setting("adamw or lamb", "adamw", choices=("adamw", "lamb"))
    recompute_activations: bool = setting("keep only each layer's input for the backward pass", False)
    chips: str = setting(f"comma-separated names of chips from {', '.join(CHIPS)}", "v5e,v4", group="Devices")
    tpu_compiler: str = setting(
        "Python with the TPU compiler, which `make tpu-check` installs", ".venv-tpu/bin/python", group="Devices"
    )
    gpu_compiler: str = setting(
        "Python with the GPU compiler, which `make gpu-check` installs", ".venv-gpu/bin/python", group="Devices"
    )

    def __post_init__(self):
        check_values(self)
        unknown = [name for name in self.chips.split(",") if name not in CHIPS]
        require(not unknown, f"--chips={self.chips}: must be names from {', '.join(CHIPS)}, separated by commas")
