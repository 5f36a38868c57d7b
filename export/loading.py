"""Loads an export with only tensorflow and tensorflow_text, as other programs do, and replays its warm-up requests."""

import os
from collections.abc import Iterator

import tensorflow as tf
import tensorflow_text  # noqa: F401 registers the ops of the tokenizers
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from bert_tf.core.errors import InputError
from export import operations, warmup
from export.serve.errors import reason

_INIT = "__saved_model_init_op"


def signature_defs(folder: str) -> dict[str, meta_graph_pb2.SignatureDef]:
    """Returns the signatures that `saved_model.pb` declares, by name."""
    path = os.path.join(folder, "saved_model.pb")
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; give the folder of a version, such as models/reviews/1")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            model = saved_model_pb2.SavedModel.FromString(file.read())
        definitions = model.meta_graphs[0].signature_def
    except (DecodeError, IndexError) as error:
        raise InputError(f"{path}: is damaged; export again") from error
    return {name: definitions[name] for name in sorted(definitions) if name != _INIT}


def check(folder: str) -> int:
    """Checks the operations of an export, loads it, and replays its warm-up requests.

    Returns:
      The number of warm-up requests.
    """
    definitions = signature_defs(folder)
    operations.check(folder)
    try:
        model = tf.saved_model.load(folder)
    except Exception as error:  # TensorFlow raises exceptions of many classes
        raise InputError(f"{folder}: cannot be loaded ({_cause(error)}); export again") from error
    where, count = os.path.join(folder, warmup.NAME), 0
    try:
        for request in warmup.read(folder):
            expected = definitions[request.signature].method_name.rpartition("/")[2] if request.signature else ""
            if request.method not in ("predict", expected):
                raise ValueError(f"signature {request.signature} has the method {expected}")
            answers = model.signatures[request.signature](**{k: tf.constant(v) for k, v in request.inputs.items()})
            _check_answers(answers)
            count += 1
    except Exception as error:
        raise InputError(f"{where}: request {count} fails ({_cause(error)}); export again") from error
    if tf.io.gfile.exists(where) and not count:
        raise InputError(f"{where}: contains no request; export again")
    return count


def _check_answers(answers: dict[str, tf.Tensor]) -> None:
    for name, value in answers.items():
        if value.dtype.is_floating and not bool(tf.reduce_all(tf.math.is_finite(value))):
            raise ValueError(f"output {name} is not finite")


def describe(folder: str) -> Iterator[str]:
    """Yields lines that describe the signatures: name and method, and the dtypes and shapes of inputs and outputs."""
    for name, definition in signature_defs(folder).items():
        yield f"{name}  {definition.method_name}"
        for title, infos in (("in ", definition.inputs), ("out", definition.outputs)):
            for key in sorted(infos):
                sizes = [str(size.size) if size.size >= 0 else "?" for size in infos[key].tensor_shape.dim]
                yield f"  {title} {key}: {tf.as_dtype(infos[key].dtype).name} [{', '.join(sizes)}]"


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {reason(str(error))}"
