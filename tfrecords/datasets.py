"""What every `tf.data` pipeline of this project has in common."""

import tensorflow as tf


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without TensorFlow's thread that tunes it while it is read.

    The end of an iterator waits for that thread, which sleeps twice as long each time, up to a minute. Such a wait can
    be as long as everything before it. `tf.data.AUTOTUNE` then stands for one call for each core, 16 at most, and for
    a buffer that doubles as long as its reader finds it empty.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
