"""Reads the server's configuration files. They are protocol buffers in text format."""

import dataclasses
import os

import tensorflow as tf
from google.protobuf import descriptor_pb2, message_factory, text_format
from google.protobuf.message import Message
from tensorflow_serving.config import model_server_config_pb2

from bert_tf.core.errors import InputError

PLATFORM = "tensorflow"
# Messages of TF Serving that the package tensorflow-serving-api lacks. The text format uses only the names of the
# fields, so the field numbers may differ from TF Serving's.
_LACKED = """
name: "serve.proto" syntax: "proto3"
message_type { name: "Number" field { name: "value" number: 1 type: TYPE_INT64 } }
message_type { name: "Text" field { name: "value" number: 1 type: TYPE_STRING } }
message_type {
  name: "BatchingParameters"
  field { name: "max_batch_size" number: 1 type_name: "Number" }
  field { name: "batch_timeout_micros" number: 2 type_name: "Number" }
  field { name: "max_enqueued_batches" number: 3 type_name: "Number" }
  field { name: "num_batch_threads" number: 4 type_name: "Number" }
  field { name: "thread_pool_name" number: 5 type_name: "Text" }
  field { name: "allowed_batch_sizes" number: 6 type: TYPE_INT64 label: LABEL_REPEATED }
  field { name: "pad_variable_length_inputs" number: 7 type: TYPE_BOOL }
}
message_type {
  name: "PrometheusConfig"
  field { name: "enable" number: 1 type: TYPE_BOOL }
  field { name: "path" number: 2 type: TYPE_STRING }
}
message_type {
  name: "MonitoringConfig"
  field { name: "prometheus_config" number: 1 type_name: "PrometheusConfig" }
}
"""
_MESSAGES = message_factory.GetMessages([text_format.Parse(_LACKED, descriptor_pb2.FileDescriptorProto())])


@dataclasses.dataclass(frozen=True)
class Batching:
    """Parameters of batching; the defaults are TF Serving's.

    Attributes:
      max_batch_size: maximum number of rows in a request, and in a batch.
      batch_timeout: seconds that a batch waits for more rows.
      max_enqueued_batches: maximum number of waiting batches; further requests get UNAVAILABLE.
      num_batch_threads: number of batches that run at the same time.
      allowed_batch_sizes: allowed numbers of rows in a batch, in ascending order; () allows any number. Smaller batches
        are filled up to an allowed number.
      pad_variable_length_inputs: whether inputs of different shapes are padded with zeros to share a batch.
    """

    max_batch_size: int = 1000
    batch_timeout: float = 0.0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False


def _read(flag: str, path: str, message: Message) -> Message:
    try:
        with tf.io.gfile.GFile(path) as file:
            return text_format.Parse(file.read(), message)
    except text_format.ParseError as error:
        raise InputError(
            f"--{flag}={path}: {type(message).__name__} expected, line {error}; correct the file"
        ) from error
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        raise InputError(f"--{flag}={path}: cannot be read ({error}); check the path") from error


def read_batching(path: str) -> Batching:
    """Reads BatchingParameters; an empty path gives the defaults.

    Raises:
      InputError: the file cannot be read, or a value is out of range.
    """
    if not path:
        return Batching()
    flag = "batching_parameters_file"
    given = _read(flag, path, _MESSAGES["BatchingParameters"]())
    values = {
        name: getattr(given, name).value
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads")
        if given.HasField(name)
    }
    for name, value in values.items():
        if value < 1:
            raise InputError(f"--{flag}={path}: {name} is {value}; it must be above 0")
    if given.batch_timeout_micros.value < 0:
        raise InputError(f"--{flag}={path}: batch_timeout_micros is below 0")
    batching = Batching(
        **values,
        batch_timeout=given.batch_timeout_micros.value / 1e6,
        allowed_batch_sizes=tuple(given.allowed_batch_sizes),
        pad_variable_length_inputs=given.pad_variable_length_inputs,
    )
    sizes = batching.allowed_batch_sizes
    if sizes and (list(sizes) != sorted(set(sizes)) or sizes[0] < 1 or sizes[-1] != batching.max_batch_size):
        raise InputError(
            f"--{flag}={path}: allowed_batch_sizes must ascend and end with max_batch_size ({batching.max_batch_size})"
        )
    return batching


def read_metrics_path(path: str) -> str:
    """Reads MonitoringConfig; returns the URL path of the metrics, or "" if metrics are not enabled.

    Raises:
      InputError: the file cannot be read.
    """
    if not path:
        return ""
    message = _MESSAGES["MonitoringConfig"]()
    prometheus = _read("monitoring_config_file", path, message).prometheus_config
    return (prometheus.path or "/monitoring/prometheus/metrics") if prometheus.enable else ""


def read_models(path: str) -> model_server_config_pb2.ModelServerConfig:
    """Reads ModelServerConfig.

    Raises:
      InputError: the file cannot be read, or `problem_of` finds a problem.
    """
    config = _read("model_config_file", path, model_server_config_pb2.ModelServerConfig())
    if problem := problem_of(config):
        raise InputError(f"--model_config_file={path}: {problem}")
    return config


def one_model(name: str, base_path: str) -> model_server_config_pb2.ModelServerConfig:
    """Returns the configuration of a single model.

    Raises:
      InputError: `problem_of` finds a problem.
    """
    config = model_server_config_pb2.ModelServerConfig()
    config.model_config_list.config.add(name=name, base_path=base_path, model_platform=PLATFORM)
    if problem := problem_of(config):
        raise InputError(f"--model_name={name} --model_base_path={base_path}: {problem}")
    return config


def problem_of(config: model_server_config_pb2.ModelServerConfig) -> str:
    """Returns a description of the first problem in a configuration; "" if there is none."""
    if config.HasField("custom_model_config"):
        return "custom_model_config is not supported; give a model_config_list"
    names = set()
    for model in config.model_config_list.config:
        if not model.name or set(model.name) & set("/:"):
            return f"model name {model.name!r} is empty or contains / or :"
        if model.name in names:
            return f"Illegal to list model {model.name} multiple times in config list"
        names.add(model.name)
        if model.model_platform != PLATFORM and model.model_type != model_server_config_pb2.TENSORFLOW:
            return f'model {model.name} needs model_platform: "tensorflow"'
        if not model.base_path or set(model.base_path) & set("*?[\\"):
            return f"base_path {model.base_path!r} of model {model.name} is empty or contains *, ?, [ or a backslash"
        policy = model.model_version_policy
        if policy.HasField("specific") and not policy.specific.versions:
            return f"the specific version policy of model {model.name} lists no versions"
    return ""
