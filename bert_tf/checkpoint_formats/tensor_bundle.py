"""Reads and writes TensorFlow's checkpoint files, by tensor names or by the object graph."""

import glob
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert_tf.checkpoint_formats.contents import StoredTensor
from bert_tf.core.errors import InputError

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_FLOATS = (tf.float32, tf.float16, tf.bfloat16, tf.float64)
STATE_NAME = "checkpoint"
# These errors do not mean that a file is damaged, because a later attempt may succeed.
_NOT_DAMAGE = (
    tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError, tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError, tf.errors.UnauthenticatedError, tf.errors.UnavailableError,
)  # fmt: skip
# The suffix that TensorFlow 2 adds to a variable's path.
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_BOOKKEEPING = ("save_counter", "global_step", _GRAPH)


class TensorBundle:
    """An open checkpoint.
    `prefix`: the checkpoint's path without `.index`."""

    def __init__(self, prefix: str):
        self.prefix = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            self.shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
            self._dtypes = self._reader.get_variable_to_dtype_map()
        except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
            raise InputError(f"{prefix}: cannot be read as a checkpoint ({error}); copy it again") from error
        self._check_data()

    def _check_data(self) -> None:
        """Refuses missing or truncated data files before the first read."""
        needed = sum(int(np.prod(shape)) * self._dtypes[name].size for name, shape in self.shapes.items())
        parts = tf.io.gfile.glob(f"{glob.escape(self.prefix)}.data-?????-of-?????")
        if not parts:
            raise InputError(
                f"{self.prefix}: {self.prefix}.data-00000-of-00001 is missing; copy it to the folder of the .index file"
            )
        size = sum(tf.io.gfile.stat(part).length for part in parts)
        if size < needed:
            raise InputError(
                f"{self.prefix}: its data is truncated ({size} bytes instead of at least {needed}); copy it again"
            )

    @property
    def has_objects(self) -> bool:
        """Whether the checkpoint has an object graph, which TensorFlow 2 writes."""
        return _GRAPH in self.shapes

    def graph(self) -> "ObjectGraph":
        proto = trackable_object_graph_pb2.TrackableObjectGraph()
        proto.ParseFromString(self._value(_GRAPH))
        return ObjectGraph(proto)

    def stored(self, name: str) -> StoredTensor:
        if self._dtypes[name] not in _FLOATS:
            raise InputError(
                f"{self.prefix}: the tensor {name} has type {self._dtypes[name].name}, but weights need "
                "floating-point values; give the checkpoint before quantization"
            )
        return StoredTensor(name.removesuffix(VALUE), tuple(self.shapes[name]), lambda: self._reader.get_tensor(name))

    def left_over(self, keys: Collection[str]) -> dict[str, Any]:
        """Returns the fields of `OpenCheckpoint` for the tensors whose names are not in `keys`."""
        others = [name for name in self.shapes if name not in keys and not name.startswith(_BOOKKEEPING)]
        optimizer = of_optimizer(others)
        left_over = tuple(name.removesuffix(VALUE) for name in others if name not in optimizer)
        return {"left_over": left_over, "optimizer_tensors": len(optimizer)}

    def check_values(self) -> None:
        """Reads every tensor, so that TensorFlow verifies the checksums."""
        for name in self.shapes:
            self._value(name)

    def _value(self, name: str):
        try:
            return self._reader.get_tensor(name)
        except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
            raise InputError(f"{self.prefix}: its data cannot be read ({name}: {error}); copy it again") from error


def damage(prefix: str) -> str:
    """Reads all bytes of a checkpoint, and describes the damage; returns "" if the checkpoint is intact."""
    try:
        try:
            TensorBundle(prefix).check_values()
        except InputError as error:
            if isinstance(error.__cause__, _NOT_DAMAGE):
                raise error.__cause__ from None
            _read_files(prefix)
            line = " ".join(str(error).split())
            return line.rpartition(";")[0] or line
    except tf.errors.OpError as error:
        reason = " ".join(error.message.split())
        raise InputError(
            f"{prefix}: cannot be read now ({reason}); nothing was changed; fix the cause, or move the checkpoint's "
            "files out of the folder, and start again"
        ) from error
    return ""


def _read_files(prefix: str) -> None:
    """Reads the files directly, because TensorFlow's reader reports a missing permission as damage."""
    for path in tf.io.gfile.glob(f"{glob.escape(prefix)}.*"):
        with tf.io.gfile.GFile(path, "rb") as file:
            while file.read(1 << 24):
                pass


class ObjectGraph:
    """The objects in a checkpoint, and the attributes that connect the objects. Each object has a number. The number of
    the root is 0."""

    def __init__(self, proto):
        self._nodes = proto.nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def children(self, node: int) -> dict[str, int]:
        """Maps the names of an object's attributes to the numbers of the child objects."""
        return {child.local_name: child.node_id for child in self._nodes[node].children}

    def key(self, node: int) -> str | None:
        """Returns the tensor name of a variable in the file; None if the object is not a variable."""
        for attribute in self._nodes[node].attributes:
            if attribute.name == "VARIABLE_VALUE":
                return attribute.checkpoint_key
        return None

    def resolve(self, node: int, path: tuple[str, ...]) -> int | None:
        """Follows a path of attributes to an object; returns None if an attribute is missing."""
        for name in path:
            node = self.children(node).get(name)
            if node is None:
                return None
        return node

    def variables_below(self, node: int) -> Iterator[tuple[str, str]]:
        """Yields the attribute path and the tensor name of each variable below an object; visits no object twice."""
        seen, todo = {node}, [(node, "")]
        while todo:
            node, path = todo.pop()
            for name, child in self.children(node).items():
                if child in seen:
                    continue
                seen.add(child)
                key = self.key(child)
                if key is not None:
                    yield path + name, key
                todo.append((child, f"{path}{name}/"))


def of_optimizer(names: Iterable[str]) -> list[str]:
    """Returns the names that belong to an optimizer's tensors; all names are in TensorFlow 2's form."""
    return [name for name in names if name.startswith("optimizer/") or "/.OPTIMIZER_SLOT/" in name]


def write_names(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes tensors by name, in TensorFlow 1's format."""
    order = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=order,
        shape_and_slices=[""] * len(order),
        tensors=[tf.constant(tensors[name]) for name in order],
    )


def write_without_optimizer(source: str, target: str) -> None:
    """Copies a checkpoint of TensorFlow 2 without the state of its optimizer."""
    bundle = TensorBundle(source)
    dropped = set(of_optimizer(bundle.shapes))
    tensors = {name: bundle._value(name) for name in bundle.shapes if name not in dropped}
    proto = trackable_object_graph_pb2.TrackableObjectGraph.FromString(tensors[_GRAPH])
    for node in proto.nodes:
        children = [child for child in node.children if child.local_name != "optimizer"]
        attributes = [attribute for attribute in node.attributes if attribute.checkpoint_key not in dropped]
        del node.children[:], node.attributes[:], node.slot_variables[:]
        node.children.extend(children)
        node.attributes.extend(attributes)
    write_names(target, tensors | {_GRAPH: proto.SerializeToString()})


class _Object(tf.__internal__.tracking.AutoTrackable):
    """An object that only has attributes."""


def object_tree(tensors: Mapping[tuple[str, ...], np.ndarray]) -> tf.__internal__.tracking.AutoTrackable:
    """Builds objects and variables by their attribute paths."""
    root = _Object()
    for path, value in tensors.items():
        node = root
        for name in path[:-1]:
            if not hasattr(node, name):
                setattr(node, name, _Object())
            node = getattr(node, name)
        # Weights must not use an accelerator's memory.
        with tf.device("cpu:0"):
            setattr(node, path[-1], tf.Variable(value))
    return root


def write_objects(prefix: str, objects: Mapping[str, tf.__internal__.tracking.AutoTrackable]) -> None:
    """Writes objects in TensorFlow 2's format, and the folder's `checkpoint` file."""
    checkpoint = tf.train.Checkpoint(**objects)
    # `restore` expects this counter, but `write` does not create it.
    checkpoint.save_counter.assign(1)
    checkpoint.write(prefix)
    name = os.path.basename(prefix)
    with tf.io.gfile.GFile(os.path.join(os.path.dirname(prefix), STATE_NAME), "w") as file:
        file.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')
