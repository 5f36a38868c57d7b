"""Works around what TensorFlow 2.20 and the C library lack an interface for.

The functions were written for this version; read them again when it changes.
"""

import contextlib
import ctypes
import functools
import gc
import os
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.framework import config, ops

from bert_tf.core.datasets import without_autotune

# Options of glibc's `mallopt`.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_MAKE_DEVICE_DATASET = "_create_device_dataset"
# The mangled name of absl::SetMinLogLevel in TensorFlow's library.
_SET_MIN_LOG_LEVEL = "_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE"


def keep_freed_memory() -> None:
    """Lets glibc keep freed memory for the next step, instead of returning the memory to the operating system. A step
    allocates and frees gradients, activations and new weights. By default, glibc returns large blocks immediately, and
    the operating system clears each block before it provides the block again. The clearing can take a quarter of a
    step. The function has no effect with other C libraries, or if the user has set one of glibc's options in the
    environment."""
    if any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ:
        return
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - fails with other C libraries
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def end_iterators_at_once() -> None:
    """Applies `without_autotune` to the dataset that a strategy creates for each device. TensorFlow has no interface
    for the options of this dataset, so a function of TensorFlow is replaced. If a version of TensorFlow creates the
    dataset with another function, ending an iterator may take up to a minute."""
    make = getattr(multi_device_iterator_ops, _MAKE_DEVICE_DATASET, None)
    if make and not hasattr(make, "__wrapped__"):
        made = functools.wraps(make)(lambda *args, **options: without_autotune(make(*args, **options)))
        setattr(multi_device_iterator_ops, _MAKE_DEVICE_DATASET, made)


def silence_compilation_messages() -> None:
    """Applies TF_CPP_MIN_LOG_LEVEL to the messages that TensorFlow's compilers print through Abseil. TensorFlow does
    not apply the variable to these messages, and has no interface for their level."""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0")
    framework = os.path.join(os.path.dirname(tf.__file__), "libtensorflow_framework.so.2")
    with contextlib.suppress(OSError, AttributeError):
        # Set at most level 2, because higher levels hide errors.
        ctypes.CDLL(framework)[_SET_MIN_LOG_LEVEL](min(int(level), 2) if level.isdecimal() else 0)


@contextlib.contextmanager
def deterministic_operations(wanted: bool) -> Iterator[None]:
    """Turns on deterministic operations if `wanted`, and restores the previous state for later runs in the process."""
    is_set_here = wanted and not config.is_op_determinism_enabled()
    if is_set_here:
        config.enable_op_determinism()
    try:
        yield
    finally:
        if is_set_here:
            config.disable_op_determinism()  # TensorFlow has no public function for this


@contextlib.contextmanager
def released_graphs() -> Iterator[None]:
    """At the end of a block, releases the graphs that the block traced, and the weights that these graphs read.
    TensorFlow keeps the gradient of each traced call of a `tf.custom_gradient` in a registry forever. The gradient
    refers to the graph, and the graph refers to all weights and moments. TensorFlow uses an entry of the registry only
    while it traces a gradient, so the entries are not needed after the block."""
    gradients = ops.gradient_registry
    before = set(gradients.list())
    try:
        yield
    finally:
        for name in set(gradients.list()) - before:
            if name.startswith("CustomGradient-"):
                del gradients._registry[name]
        # Graphs and weights form reference cycles.
        gc.collect()
