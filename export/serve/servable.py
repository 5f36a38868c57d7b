"""A loaded version of a model: finds the tensors of a call of Predict, for REST and for gRPC, and computes them."""

import contextlib
import ctypes
import functools
import gc
import itertools
import math
import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 registers the ops of the tokenizers
from tensorflow.core.protobuf import meta_graph_pb2

from bert_tf.core import storage
from export import warmup
from export.serve.errors import Code, ServingError, from_exception, invalid, reason

Arrays = Mapping[str, np.ndarray]
# Each set of inputs and outputs needs a TensorFlow callable. Clients choose the outputs, so there is a limit.
_KEPT_CALLS = 32
_MOST_WARMUP_REQUESTS = 1000
_TOO_LARGE = "the answer is too large"


class Servable:
    """A SavedModel in its own session, so that unloading frees all of the model's memory. `run` is thread-safe.
    `counts`: maps output tensors to the tensor with the number of their values in each row, such as `num_words`.
    `most_seconds`: maximum time of each `run`."""

    def __init__(
        self, folder: str, intra_op_threads: int = 0, inter_op_threads: int = 0, largest_answer: int = 1 << 40
    ):
        """Loads a SavedModel.
        `largest_answer`: maximum size of the tensors that a run computes, in bytes.
        `intra_op_threads`: threads per operation; 0 means one per core.
        `inter_op_threads`: number of operations that run at the same time; 0 means one per core.
        Raises tf.errors.OpError, OSError, InputError: the SavedModel is missing or damaged."""
        storage.check_regular_files(folder)
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=intra_op_threads, inter_op_parallelism_threads=inter_op_threads
        )
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default():
                graph = tf.compat.v1.saved_model.load(self._session, [tf.saved_model.SERVING], folder)
        except BaseException:
            self._session.close()
            raise
        self.signatures: Mapping[str, meta_graph_pb2.SignatureDef] = dict(graph.signature_def)
        self.counts = {k: v for signature in self.signatures.values() for k, v in _counts_of(signature).items()}
        self._largest_answer = largest_answer
        self.most_seconds = math.inf
        self._making_calls = threading.Lock()
        self._kept_calls = functools.lru_cache(_KEPT_CALLS)(self._make_call)
        # A graph never shrinks, so a set of outputs adds operations only once, even if its callable was dropped.
        self._kept_outputs = functools.cache(self._limit)

    def run(self, feeds: Arrays, fetches: Sequence[str], seconds: float = math.inf) -> dict[str, np.ndarray]:
        """Computes tensors.
        `feeds`: maps tensor names to values.
        `seconds`: maximum time, at most `most_seconds`.
        Raises tf.errors.OpError, ServingError: an operation fails, the run takes too long, or the tensors are too
        large."""
        seconds = min(seconds, self.most_seconds)
        if seconds <= 0:
            raise ServingError(Code.DEADLINE_EXCEEDED, "no time is left for the request")
        limit = None if seconds == math.inf else tf.compat.v1.RunOptions(timeout_in_ms=math.ceil(seconds * 1000))
        fed, fetched = tuple(sorted(feeds)), tuple(sorted(set(fetches)))
        with self._making_calls:  # a graph accepts new callables from only one thread at a time
            call = self._kept_calls(fed, fetched)
        try:
            values = call(*(feeds[name] for name in fed), options=limit)
        except tf.errors.InvalidArgumentError as error:
            if _TOO_LARGE not in error.message:
                raise
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"the answer has more than {self._largest_answer} bytes (--max_request_mb); ask for fewer rows, or for "
                "shorter ones",
                http_status=413,
            ) from None
        except UnicodeDecodeError as error:  # TensorFlow's error message quotes bytes that are not UTF-8
            raise invalid(reason(error.object.decode("utf-8", "replace"))) from error
        return dict(zip(fetched, values, strict=True))

    def _make_call(self, fed: tuple[str, ...], fetched: tuple[str, ...]):
        return self._session.make_callable(self._kept_outputs(fetched), feed_list=list(fed))

    def _limit(self, fetched: tuple[str, ...]) -> list[tf.Tensor]:
        """Returns tensors that the graph itself refuses to compute if they are large, so they are never copied."""
        graph = self._session.graph
        with graph.as_default():
            tensors = [graph.get_tensor_by_name(name) for name in fetched]
            size = tf.add_n(list(map(_bytes_of, tensors)))
            with tf.control_dependencies([tf.debugging.Assert(size <= self._largest_answer, [_TOO_LARGE])]):
                return [tf.identity(tensor) for tensor in tensors]

    def close(self) -> None:
        """Frees the weights. No `run` may be active, and none may start afterwards."""
        session, self._session = self._session, None
        self._kept_calls = self._kept_outputs = None  # the caches refer to this object
        session.close()
        del session
        gc.collect()  # otherwise the graph, which refers to itself, would stay in memory until the next full collection
        _return_freed_memory()


def _counts_of(signature: meta_graph_pb2.SignatureDef) -> dict[str, str]:
    """See `Servable.counts`. The second axis of a tensor with a count has no fixed size."""
    outputs = signature.outputs.items()
    counts = [info.name for name, info in outputs if name.startswith("num_") and tf.as_dtype(info.dtype).is_integer]
    shapes = {info.name: tf.TensorShape(info.tensor_shape) for _, info in outputs}
    ragged = [name for name, shape in shapes.items() if shape.rank and shape.rank > 1 and shape[1] is None]
    return dict.fromkeys(ragged, counts[0]) if len(counts) == 1 else {}


def _bytes_of(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype == tf.string:
        return tf.reduce_sum(tf.cast(tf.strings.length(tensor), tf.int64)) + 8 * tf.size(tensor, tf.int64)
    return tensor.dtype.size * tf.size(tensor, tf.int64)


def _return_freed_memory() -> None:
    """Makes glibc return freed memory to the system, which it otherwise keeps for each thread that allocated memory."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def find_signature(servable: Servable, name: str) -> meta_graph_pb2.SignatureDef:
    """Returns a signature; "" is the name of the default signature.
    Raises ServingError: the signature does not exist."""
    signature = servable.signatures.get(name or warmup.DEFAULT_SIGNATURE)
    if signature is None or not signature.method_name:  # the initializer of a SavedModel has no method
        names = ", ".join(sorted(key for key, each in servable.signatures.items() if each.method_name))
        raise ServingError(
            Code.FAILED_PRECONDITION,
            f"no signature {name or warmup.DEFAULT_SIGNATURE}; the model has {names or 'none'}",
        )
    return signature


def plan_predict(
    servable: Servable, signature_name: str, inputs: Arrays, output_filter: Iterable[str] = ()
) -> tuple[Arrays, dict[str, str]]:
    """Finds the tensors of a Predict call.
    `signature_name`: name of the signature; "" means the default signature.
    `output_filter`: names of the outputs to compute; empty means all outputs.
    Returns the arrays to feed, by tensor name; and the names of the tensors to compute, by output name.
    Raises ServingError: the signature does not exist, or the inputs or the filter do not fit the signature."""
    signature = find_signature(servable, signature_name)
    _check_inputs(signature, inputs)
    chosen = set(output_filter) or set(signature.outputs)
    if unknown := chosen - set(signature.outputs):
        raise invalid(f"no output {', '.join(sorted(unknown))}; the signature has {_names(signature.outputs)}")
    outputs = {name: signature.outputs[name].name for name in sorted(chosen)}
    return {signature.inputs[name].name: array for name, array in inputs.items()}, outputs


def _check_inputs(signature: meta_graph_pb2.SignatureDef, inputs: Arrays) -> None:
    """Checks the names, types and shapes of inputs, so that no invalid request reaches the graph or a batch."""
    if inputs.keys() != set(signature.inputs):
        raise invalid(f"the signature has the inputs {_names(signature.inputs)}, the request has {_names(inputs)}")
    for name, info in sorted(signature.inputs.items()):
        actual, expected = tf.as_dtype(inputs[name].dtype), tf.as_dtype(info.dtype)
        if actual != expected and {actual, expected} != {tf.string, tf.as_dtype(np.object_)}:
            raise invalid(f"input {name} is {actual.name}; it must be {expected.name}")
        shape = tf.TensorShape(info.tensor_shape)
        if not shape.is_compatible_with(inputs[name].shape):
            raise invalid(f"input {name} has the shape {list(inputs[name].shape)}, which does not fit {shape}")


def _names(named: Mapping) -> str:
    return ", ".join(sorted(named)) or "none"


def reshaped(array: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Reshapes an array to the shape in a request.
    Raises ServingError: the shape has more dimensions than NumPy supports."""
    try:
        return array.reshape(sizes)
    except ValueError as error:
        raise invalid(f"a tensor of {len(sizes)} dimensions is not supported") from error


def replay(folder: str, servable: Servable) -> int:
    """Runs the requests that the export recorded, so that the first client does not wait; returns their number.
    Raises ServingError: a recorded request fails, or the file is damaged."""
    count = 0
    try:
        for request in itertools.islice(warmup.read(folder), _MOST_WARMUP_REQUESTS):
            feeds, outputs = plan_predict(servable, request.signature, request.inputs)
            servable.run(feeds, tuple(outputs.values()))
            count += 1
    except Exception as error:
        cause = from_exception(error)
        raise ServingError(cause.code, f"{warmup.NAME}, request {count}: {cause.message}") from error
    return count
