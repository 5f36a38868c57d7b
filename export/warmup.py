"""The file `assets.extra/tf_serving_warmup_requests`: requests that a server replays before it serves a version.

The file contains `tensorflow.serving.PredictionLog` messages as TFRecords.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from bert_tf.core.datasets import without_autotune

NAME = os.path.join("assets.extra", "tf_serving_warmup_requests")
DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
# TF Serving's name for the input of classify and regress.
EXAMPLES_INPUT = "inputs"
_KINDS = ("classify", "regress", "predict")


@dataclasses.dataclass(frozen=True)
class Request:
    """One recorded request."""

    method: str  # "predict", "classify" or "regress"
    signature: str
    # maps the names of the signature's inputs to arrays. For classify and regress, the only input is `inputs`, with
    # serialized Examples.
    inputs: Mapping[str, np.ndarray]


def write(folder: str, model: str, requests: Sequence[Request]) -> None:
    tf.io.gfile.makedirs(os.path.dirname(os.path.join(folder, NAME)))
    with tf.io.TFRecordWriter(os.path.join(folder, NAME)) as file:
        for one in requests:
            log = PredictionLog()
            request = getattr(log, f"{one.method}_log").request
            request.model_spec.name, request.model_spec.signature_name = model, one.signature
            if one.method == "predict":
                for name, value in one.inputs.items():
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            else:
                request.input.example_list.examples.extend(map(tf.train.Example.FromString, one.inputs[EXAMPLES_INPUT]))
            file.write(log.SerializeToString(deterministic=True))


def read(folder: str) -> Iterator[Request]:
    """Yields the warm-up requests of a version; yields nothing if the file is missing.
    Raises google.protobuf.message.DecodeError: a record is not a `PredictionLog`.
    Raises tf.errors.OpError: the file is damaged.
    Raises ValueError: a record is a request of another kind."""
    path = os.path.join(folder, NAME)
    if not tf.io.gfile.exists(path):
        return
    records = without_autotune(tf.data.TFRecordDataset(path))
    for index, record in enumerate(records.as_numpy_iterator()):
        log = PredictionLog.FromString(record)
        method = next((kind for kind in _KINDS if log.HasField(f"{kind}_log")), None)
        if method is None:
            raise ValueError(f"record {index} is not a request to predict, classify or regress")
        request = getattr(log, f"{method}_log").request
        if method == "predict":
            inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        else:
            examples = [example.SerializeToString() for example in request.input.example_list.examples]
            inputs = {EXAMPLES_INPUT: np.array(examples, object)}
        yield Request(method, request.model_spec.signature_name or DEFAULT_SIGNATURE, inputs)
