import weakref

import tensorflow as tf

from bert_tf.distributed.workarounds import released_graphs


def traced():
    """Traces a function with a custom gradient; returns a weak reference to its graph."""
    weight = tf.Variable(1.0)

    @tf.custom_gradient
    def double(x):
        return 2.0 * x, lambda upstream: 2.0 * upstream

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = double(weight.read_value())
        return tape.gradient(loss, weight)

    assert float(gradient()) == 2.0
    return weakref.ref(gradient.get_concrete_function().graph)


def test_a_graph_with_a_custom_gradient_is_released():
    with released_graphs():
        graph = traced()
    assert graph() is None
