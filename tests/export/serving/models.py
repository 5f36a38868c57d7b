"""Small SavedModels with signatures of every kind, similar to the models of TF Serving's own tests."""

import pathlib

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

v1 = tf.compat.v1
KINDS = ("float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint32", "uint64", "bool", "string")


def write_model(base: pathlib.Path, version: int) -> pathlib.Path:
    """Writes a version whose default signature computes x / 2 + version."""
    folder = base / str(version)
    temporary = base / f"temporary-{version}"
    with tf.Graph().as_default(), v1.Session() as session:
        bias = v1.get_variable("bias", initializer=float(version), use_resource=True)
        session.run(bias.initializer)
        builder = v1.saved_model.Builder(str(temporary))
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.SERVING], signature_def_map=dict(_signatures(bias))
        )
        builder.save()
    return temporary.rename(folder)


def write_warmup(folder: pathlib.Path, signature: str, name: str, values) -> None:
    """Adds a warm-up request of a signature for each value of its input."""
    (folder / "assets.extra").mkdir()
    with tf.io.TFRecordWriter(str(folder / "assets.extra/tf_serving_warmup_requests")) as writer:
        for value in values:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.signature_name = signature
            log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            writer.write(log.SerializeToString())


def _signature(inputs, outputs, method="predict"):
    infos = [{name: v1.saved_model.build_tensor_info(one) for name, one in each.items()} for each in (inputs, outputs)]
    return v1.saved_model.build_signature_def(*infos, f"tensorflow/serving/{method}")


def _signatures(bias):
    x = v1.placeholder(tf.float32, [None])
    y = x / 2 + bias
    yield "serving_default", _signature({"x": x}, {"y": y})
    yield "total", _signature({"x": x}, {"sum": tf.reduce_sum(x)})
    with tf.control_dependencies([v1.assert_non_negative(x, message="x is negative")]):
        yield "checked", _signature({"x": x}, {"y": tf.identity(y)})
    a, b = v1.placeholder(tf.float32, [None, 2]), v1.placeholder(tf.int32, [None])
    yield "two", _signature({"a": a, "b": b}, {"sum": a + tf.cast(b, tf.float32)[:, None], "double": b * 2})
    text = v1.placeholder(tf.string, [None])
    length = tf.strings.length(text)
    yield "text", _signature({"text": text}, {"echo": tf.identity(text), "echo_bytes": text + "", "length": length})
    ids = v1.placeholder(tf.int64, [None, None])
    yield "ids", _signature({"ids": ids}, {"sum": tf.reduce_sum(ids, axis=1)})
    for kind in KINDS:
        given = v1.placeholder(kind, [None])
        yield kind, _signature({"x": given}, {"y": tf.identity(given)})
    yield "half", _signature({"x": x}, {"y": tf.cast(x, tf.float16), "z": tf.cast(x, tf.bfloat16)})
    examples = v1.placeholder(tf.string, [None])
    yield "classify_x", _signature({"inputs": examples}, {"length": tf.strings.length(examples)}, "classify")
    steps = v1.placeholder(tf.int32, [None])
    most = tf.reduce_max(tf.concat([steps, [0]], 0))
    matrix = tf.while_loop(
        lambda i, m: i < most, lambda i, m: (i + 1, tf.tanh(m @ m)), [tf.constant(0), tf.ones([64, 64])]
    )[1]
    yield "slow", _signature({"steps": steps}, {"done": steps + tf.cast(matrix[0, 0] * 0, tf.int32)})
    yield from _held_signatures()
    size = v1.placeholder(tf.int32, [None])
    yield "wide", _signature({"size": size}, {"y": tf.zeros([tf.shape(size)[0], size[0]])})


def _held_signatures():
    """`held` computes until `release` ends it; each row of `release` ends one run.

    `begun` returns the number of runs of `held` that have begun since the version was loaded.
    """
    begun, leave = (v1.FIFOQueue(10_000, [tf.int32], [[]], shared_name=name) for name in ("begun", "leave"))
    x = v1.placeholder(tf.int32, [None])
    with tf.control_dependencies([begun.enqueue(0)]):
        leaving = leave.dequeue()
    for name, waited_for in (("held", leaving), ("release", leave.enqueue_many(x))):
        with tf.control_dependencies([waited_for]):
            yield name, _signature({"x": x}, {"y": tf.identity(x)})
    yield "begun", _signature({"x": x}, {"y": tf.zeros_like(x) + begun.size()})


def halves(values, version=1):
    """Returns the default signature's answer."""
    return (np.asarray(values, np.float32) / 2 + version).tolist()


class Reviews(tf.Module):
    """A model with the inputs and outputs of an exported classifier; a text is good if it has an exclamation mark."""

    def __init__(self):
        super().__init__()
        table = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1]), tf.constant(["bad", "good"]))
        self.labels = tf.lookup.StaticHashTable(table, "")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text_a")])
    def answer(self, text_a):
        good = tf.cast(tf.strings.regex_full_match(text_a, ".*!"), tf.int32)
        return {"label": self.labels.lookup(good), "probabilities": tf.one_hot(good, 2)}
