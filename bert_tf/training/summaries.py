"""TensorBoard: figures in groups, under the same names for training and evaluation."""

import orbit
import tensorflow as tf

_GROUPS = {
    "learning_rate": "optimizer",
    "gradient_norm": "optimizer",
    "sequences_per_second": "speed",
    "tokens_per_second": "speed",
    "model_flop_utilisation": "speed",
    "peak_flops": "speed",
}
_TASKS = ("masked_lm", "next_sentence")


def tag(name: str) -> str:
    """A figure's name in TensorBoard: "masked_lm/loss" for "masked_lm_loss"."""
    if name in _GROUPS:
        return f"{_GROUPS[name]}/{name}"
    for task in _TASKS:
        if name.startswith(f"{task}_"):
            return f"{task}/{name.removeprefix(f'{task}_')}"
    return name


def manager(folder: str | None, global_step: tf.Variable) -> orbit.utils.SummaryManager:
    """What writes figures at the current step into a folder, or nothing (None), for orbit's controller or by itself."""

    def write(name, value, step):
        # orbit's own rate counts checkpoints and evaluations as training
        if name != "steps_per_second":
            tf.summary.scalar(tag(name), value, step=step)

    return orbit.utils.SummaryManager(folder, write, global_step=global_step)
