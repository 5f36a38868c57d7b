"""The operations that an export may contain. TF Serving has only the operations of TensorFlow and tensorflow-text."""

import sys
from collections.abc import Iterator

import tensorflow as tf
import tensorflow_text  # noqa: F401 loads the modules that list its operations
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from bert_tf.core.errors import InputError

# Operations that call Python functions of the process that wrote the graph. Other processes lack these functions.
_OF_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def allowed() -> frozenset[str]:
    """Returns the names of the operations that an export may contain."""
    core = {name for name in dir(tf.raw_ops) if name[0].isupper()} - _OF_PYTHON
    text = [module for name, module in sys.modules.items() if name.startswith("tensorflow_text.python.ops.")]
    generated = [value for module in text for name, value in vars(module).items() if name.startswith("gen_")]
    return frozenset(core | {name for each in generated for name in vars(each) if op_def_registry.get(name)})


def used(folder: str) -> Iterator[tuple[str, str]]:
    """Yields each operation of a SavedModel, and the function that contains the operation; "" means the main graph.

    Raises:
      google.protobuf.message.DecodeError: `saved_model.pb` is damaged.
    """
    with tf.io.gfile.GFile(f"{folder}/saved_model.pb", "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    for graph in (meta_graph.graph_def for meta_graph in model.meta_graphs):
        functions = {function.signature.name for function in graph.library.function}
        parts = [("", graph.node), *((each.signature.name, each.node_def) for each in graph.library.function)]
        for name, nodes in parts:
            # A node that calls a function has the function's name as its operation.
            yield from ((node.op, name) for node in nodes if node.op not in functions)


def check(folder: str) -> None:
    """Refuses a SavedModel that contains an operation that TF Serving lacks."""
    known = allowed()
    for operation, function in used(folder):
        if operation not in known:
            where = f"function {function}" if function else "the graph"
            raise InputError(
                f"{folder}: the operation {operation} in {where} is neither core TensorFlow's nor tensorflow-text's, "
                "so TF Serving cannot run it; replace it by other operations"
            )
