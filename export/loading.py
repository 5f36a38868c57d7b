"""Loads an export with only tensorflow and tensorflow_text, as other programs do, and replays its warm-up requests.

An export may contain only operations that TF Serving has, which are those of TensorFlow and tensorflow-text.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 registers the ops of the tokenizers, and loads the modules that list them
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.framework import op_def_registry

from bert_tf.core import storage
from bert_tf.core.errors import InputError
from export import version_folder, warmup
from export.serve.errors import reason

_INIT = "__saved_model_init_op"
# Number of calls that are timed; the first call compiles code and does not count.
_TIMED_CALLS = 10
# Operations that call Python functions of the process that wrote the graph. Other processes lack these functions.
_OF_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def signature_defs(folder: str) -> dict[str, meta_graph_pb2.SignatureDef]:
    """Returns the signatures that `saved_model.pb` declares, by name."""
    path = os.path.join(folder, "saved_model.pb")
    if tf.io.gfile.exists(os.path.join(folder, version_folder.LITERT)):
        raise InputError(f"{folder}: is a LiteRT export, which was checked when it was written; load model.tflite")
    if not tf.io.gfile.exists(path):
        raise InputError(f"{path}: no such file; give the folder of a version, such as models/reviews/1")
    storage.check_regular_files(folder)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            model = saved_model_pb2.SavedModel.FromString(file.read())
        definitions = model.meta_graphs[0].signature_def
    except (DecodeError, IndexError) as error:
        raise InputError(f"{path}: is damaged; export again") from error
    return {name: definitions[name] for name in sorted(definitions) if name != _INIT}


def check(folder: str) -> tuple[Any, int]:
    """Checks the operations of an export, loads it, and replays its warm-up requests. Returns the loaded model, and the
    number of warm-up requests."""
    definitions = signature_defs(folder)
    _check_operations(folder)
    try:
        model = tf.saved_model.load(folder)
    except Exception as error:  # TensorFlow raises exceptions of many classes
        raise InputError(f"{folder}: cannot be loaded ({_cause(error)}); export again") from error
    where, count = os.path.join(folder, warmup.NAME), 0
    try:
        for request in warmup.read(folder):
            expected = definitions[request.signature].method_name.rpartition("/")[2]
            if request.method not in ("predict", expected):
                raise ValueError(f"signature {request.signature} has the method {expected}")
            answers = model.signatures[request.signature](**{k: tf.constant(v) for k, v in request.inputs.items()})
            _check_answers(answers)
            count += 1
    except Exception as error:
        raise InputError(f"{where}: request {count} fails ({_cause(error)}); export again") from error
    if tf.io.gfile.exists(where) and not count:
        raise InputError(f"{where}: contains no request; export again")
    return model, count


def latency(model: Any, folder: str, rows: int) -> float | None:
    """Returns the median time in seconds in which a model answers `rows` inputs of a warm-up request. The result is
    None if no request has rows: exports of other projects may have scalar inputs."""
    requests = []
    for request in warmup.read(folder):
        sizes = {len(value) if value.ndim else 0 for value in request.inputs.values()}
        if len(sizes) == 1 and 0 not in sizes:
            requests.append((request.signature == warmup.DEFAULT_SIGNATURE, sizes.pop(), request))
    if not requests:
        return None
    # The largest request has inputs of all lengths. Exports of other projects may lack the default signature.
    _, count, request = max(requests, key=lambda each: each[:2])
    chosen = (count // 2 + np.arange(rows)) % count  # begins with an input of medium length
    inputs = {name: tf.constant(value[chosen]) for name, value in request.inputs.items()}
    times = []
    for _ in range(1 + _TIMED_CALLS):
        started = time.perf_counter()
        for answer in model.signatures[request.signature](**inputs).values():
            answer.numpy()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


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


def allowed() -> frozenset[str]:
    """Returns the names of the operations that an export may contain."""
    core = {name for name in dir(tf.raw_ops) if name[0].isupper()} - _OF_PYTHON
    text = [module for name, module in sys.modules.items() if name.startswith("tensorflow_text.python.ops.")]
    generated = [value for module in text for name, value in vars(module).items() if name.startswith("gen_")]
    return frozenset(core | {name for each in generated for name in vars(each) if op_def_registry.get(name)})


def _used(folder: str) -> Iterator[tuple[str, str]]:
    """Yields each operation of a SavedModel, and the function that contains the operation; "" means the main graph."""
    with tf.io.gfile.GFile(f"{folder}/saved_model.pb", "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    for graph in (meta_graph.graph_def for meta_graph in model.meta_graphs):
        functions = {function.signature.name for function in graph.library.function}
        graphs = [("", graph.node), *((each.signature.name, each.node_def) for each in graph.library.function)]
        for name, nodes in graphs:
            # A node that calls a function has the function's name as its operation.
            yield from ((node.op, name) for node in nodes if node.op not in functions)


def _check_operations(folder: str) -> None:
    """Refuses a SavedModel that contains an operation that TF Serving lacks."""
    allowed_operations = allowed()
    for operation, function in _used(folder):
        if operation not in allowed_operations:
            where = f"function {function}" if function else "the graph"
            raise InputError(
                f"{folder}: the operation {operation} in {where} is neither core TensorFlow's nor tensorflow-text's, "
                "so TF Serving cannot run it; replace it by other operations"
            )
