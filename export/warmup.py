"""`assets.extra/tf_serving_warmup_requests`: requests that a server replays before it takes a version into use.

The file has `tensorflow.serving.PredictionLog`s as TFRecords. Their messages are declared here as far as they are
needed, by the same numbers, so that an export can be written and checked without `tensorflow-serving-api`.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

from tfrecords.datasets import without_autotune

NAME = os.path.join("assets.extra", "tf_serving_warmup_requests")
_KINDS = ("classify", "regress", "predict")
# Fields of each message: name, number, type (bytes where it is a message that TensorFlow has), and whether it repeats.
_MESSAGES = {
    "ModelSpec": [("name", 1, "string", False), ("signature_name", 3, "string", False)],
    "Entry": [("key", 1, "string", False), ("value", 2, "bytes", False)],
    "ExampleList": [("examples", 1, "bytes", True)],
    "Input": [("example_list", 1, "ExampleList", False)],
    "PredictRequest": [("model_spec", 1, "ModelSpec", False), ("inputs", 2, "Entry", True)],
    "ExamplesRequest": [("model_spec", 1, "ModelSpec", False), ("input", 2, "Input", False)],
    "PredictLog": [("request", 1, "PredictRequest", False)],
    "ExamplesLog": [("request", 1, "ExamplesRequest", False)],
    "PredictionLog": [
        ("classify_log", 2, "ExamplesLog", False),
        ("regress_log", 3, "ExamplesLog", False),
        ("predict_log", 6, "PredictLog", False),
    ],
}


@dataclasses.dataclass(frozen=True)
class Request:
    """One recorded request.

    Attributes:
      method: "predict", "classify" or "regress".
      signature: its name.
      inputs: arrays by the names of the signature's inputs. Those of classify and regress are serialized Examples,
        by the name `inputs`.
    """

    method: str
    signature: str
    inputs: Mapping[str, np.ndarray]


def _prediction_log():
    """Returns the class of the message PredictionLog."""
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="warmup.proto", package="warmup", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeats in fields:
            label = types.LABEL_REPEATED if repeats else types.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if kind in _MESSAGES:
                added.type, added.type_name = types.TYPE_MESSAGE, f".warmup.{kind}"
            else:
                added.type = types.TYPE_STRING if kind == "string" else types.TYPE_BYTES
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("warmup.PredictionLog"))


def write(folder: str, model: str, requests: Sequence[Request]) -> None:
    """Writes the file of a version.

    Args:
      folder: of the version.
      model: its name.
      requests: to replay.
    """
    make_log = _prediction_log()
    tf.io.gfile.makedirs(os.path.dirname(os.path.join(folder, NAME)))
    with tf.io.TFRecordWriter(os.path.join(folder, NAME)) as file:
        for one in requests:
            log = make_log()
            request = getattr(log, f"{one.method}_log").request
            request.model_spec.name, request.model_spec.signature_name = model, one.signature
            if one.method == "predict":
                for name, value in one.inputs.items():
                    request.inputs.add(key=name, value=tf.make_tensor_proto(value).SerializeToString())
            else:
                request.input.example_list.examples.extend(one.inputs["inputs"].tolist())
            file.write(log.SerializeToString(deterministic=True))


def read(folder: str) -> Iterator[Request]:
    """Reads the file of a version; yields nothing if there is none.

    Raises:
      ValueError: a record is no request.
      tf.errors.OpError: the file is damaged.
    """
    path, make_log = os.path.join(folder, NAME), _prediction_log()
    if not tf.io.gfile.exists(path):
        return
    records = without_autotune(tf.data.TFRecordDataset(path))
    for index, record in enumerate(records.as_numpy_iterator()):
        log = make_log.FromString(record)
        method = next((kind for kind in _KINDS if log.HasField(f"{kind}_log")), None)
        if method is None:
            raise ValueError(f"record {index} is no request to predict, classify or regress")
        request = getattr(log, f"{method}_log").request
        if method == "predict":
            tensors = {one.key: tensor_pb2.TensorProto.FromString(one.value) for one in request.inputs}
            inputs = {name: tf.make_ndarray(tensor) for name, tensor in tensors.items()}
        else:
            inputs = {"inputs": np.array(list(request.input.example_list.examples), object)}
        yield Request(method, request.model_spec.signature_name, inputs)
