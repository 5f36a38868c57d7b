"""The operations of an export that TF Serving lacks."""

import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401 its modules list its operations
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

# Functions of the process that wrote the graph; no other process has them.
_OF_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def foreign(folder: str) -> set[str]:
    """Returns the operations of a SavedModel that are neither core TensorFlow's nor tensorflow-text's."""
    core = {name for name in dir(tf.raw_ops) if name[0].isupper()} - _OF_PYTHON
    text = [module for name, module in sys.modules.items() if name.startswith("tensorflow_text.python.ops.")]
    generated = [value for module in text for name, value in vars(module).items() if name.startswith("gen_")]
    allowed = core | {name for each in generated for name in vars(each) if op_def_registry.get(name)}
    with tf.io.gfile.GFile(f"{folder}/saved_model.pb", "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    used = set()
    for graph in (meta_graph.graph_def for meta_graph in model.meta_graphs):
        functions = {function.signature.name for function in graph.library.function}  # may be called by their names
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            used |= {node.op for node in nodes} - functions
    assert "FastWordpieceTokenizeWithOffsets" in allowed
    return used - allowed
