"""What every `tf.data` pipeline of this project has in common."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    import tensorflow as tf


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without TensorFlow's thread that tunes it while it is read.

    An iterator waits for that thread when it ends. The thread sleeps twice as long each time, up to a minute, so the
    wait can take as long as the whole iteration. Without it, `tf.data.AUTOTUNE` means one call a core, at most 16, and
    a buffer that grows while its reader finds it empty.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
