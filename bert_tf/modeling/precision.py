"""Keras's policy, which says in which dtype the layers compute that are made under it."""

import contextlib
from collections.abc import Iterator

import tf_keras as keras


def policy_name(dtype: str) -> str:
    """Returns the policy that computes in a dtype, with weights in float32."""
    return "float32" if dtype == "float32" else f"mixed_{dtype}"


@contextlib.contextmanager
def policy(name: str = "") -> Iterator[None]:
    """Sets a policy, and restores the previous one; "" only restores it."""
    before = keras.mixed_precision.global_policy()
    if name:
        keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)
