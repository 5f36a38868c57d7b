"""Sets Keras's dtype policy, which determines the compute dtype of new layers."""

import contextlib
from collections.abc import Iterator

import tf_keras as keras


def policy_name(dtype: str) -> str:
    """Returns the name of the policy that computes in a dtype, with weights in float32."""
    return "float32" if dtype == "float32" else f"mixed_{dtype}"


@contextlib.contextmanager
def policy(name: str = "") -> Iterator[None]:
    """Sets a policy and restores the previous policy at the end; the name "" keeps the current policy."""
    before = keras.mixed_precision.global_policy()
    if name:
        keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)
