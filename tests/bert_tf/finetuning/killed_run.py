"""A kill in the middle of a run, and the variables that a checkpoint holds."""

import numpy as np
import tensorflow as tf


class Killed(BaseException):
    pass


def weights(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    names = [name for name in reader.get_variable_to_shape_map() if name.endswith("VARIABLE_VALUE")]
    return {name: reader.get_tensor(name) for name in names}


def assert_same_weights(found, expected):
    """Compares the variables of the model and of the optimizer in two checkpoints bit by bit."""
    found, expected = weights(found), weights(expected)
    assert found.keys() == expected.keys() and len(expected) > 10
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
