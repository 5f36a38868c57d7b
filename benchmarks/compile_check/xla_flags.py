"""Sets the XLA flag with which TensorFlow lowers a step to StableHLO."""

import os

_FLAG = "--tf_xla_disable_constant_folding=true"


def keep_counters() -> None:
    """Keeps TensorFlow from folding the counters of dropout masks into constants.

    Call this function before importing TensorFlow. Constants for the counters of small masks would make the program ten
    times as long, and XLA would read these constants from memory.
    """
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if "disable_constant_folding" not in flags:
        os.environ["TF_XLA_FLAGS"] = f"{flags} {_FLAG}".strip()
