"""Options for every `tf.data` pipeline of this project."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    import tensorflow as tf


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with TensorFlow's autotuning thread switched off. When an iterator ends, it waits for this
    thread. The thread sleeps twice as long each time, up to a minute, so the wait can take as long as the whole
    iteration. Without the thread, `tf.data.AUTOTUNE` means one parallel call per core, at most 16, and a buffer that
    grows whenever the reader finds the buffer empty."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
