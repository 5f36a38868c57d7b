"""Settings of the check; every field is a flag."""

import dataclasses

from bert_tf.command_line import require, setting
from tpu_check.chips import CHIPS


@dataclasses.dataclass(frozen=True)
class TpuCheckSettings:
    """What is compiled, and for which chips; names as `run_pretraining` has them."""

    bert_config_file: str = setting("the model; empty: base at 128 and 512, large at 512", "")
    train_batch_size: int = setting("rows a step on one chip", 32)
    max_seq_length: int = setting("pieces in a row", 128)
    max_predictions_per_seq: int = setting("masked positions of a row", 20)
    dtype: str = setting("dtype of the computation", "bfloat16", choices=("float32", "bfloat16"))
    optimizer: str = setting("adamw or lamb", "adamw", choices=("adamw", "lamb"))
    recompute_activations: bool = setting("keep only each layer's input for the backward pass", False)
    chips: str = setting("kinds of TPU chips, by commas", ",".join(CHIPS))
    compare_official: bool = setting("compile tf-models-official's step beside it", False)
    find_largest_batch: bool = setting("find the largest batch that fits the first of the chips", False)
    compiler: str = setting("Python with the TPU compiler, which make tpu-check installs", ".venv-tpu/bin/python")
    cache_dir: str = setting("folder for what has been compiled, so that a rerun is quick", ".venv-tpu/programs")

    def __post_init__(self):
        for name in ("train_batch_size", "max_seq_length", "max_predictions_per_seq"):
            require(getattr(self, name) > 0, f"--{name}={getattr(self, name)}: must be above 0")
        unknown = [name for name in self.chips.split(",") if name not in CHIPS]
        require(not unknown, f"--chips={self.chips}: must be of {', '.join(CHIPS)}, by commas")
