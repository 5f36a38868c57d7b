"""A loaded version of a model, with its signatures."""

import contextlib
import ctypes
import functools
import gc
import math
import threading
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 registers the ops of the tokenizers
from tensorflow.core.protobuf import meta_graph_pb2

from export.serve.errors import invalid, reason

Arrays = Mapping[str, np.ndarray]
# Each set of inputs and outputs needs a TensorFlow callable. Clients choose the outputs, so the cache has a limit.
_KEPT_CALLS = 32


class Servable:
    """A SavedModel in its own session, so that unloading frees all of the model's memory. `run` is thread-safe.

    Attributes:
      counts: names of the tensors that are an output `num_...`: the number of columns of each row, such as `num_words`.
    """

    def __init__(self, folder: str, intra_op_threads: int = 0, inter_op_threads: int = 0):
        """Loads a SavedModel.

        Args:
          intra_op_threads: threads per operation; 0 means one per core.
          inter_op_threads: number of operations that run at the same time; 0 means one per core.

        Raises:
          tf.errors.OpError, OSError: the SavedModel is missing or damaged.
        """
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
        outputs = [each for signature in self.signatures.values() for each in signature.outputs.items()]
        self.counts = frozenset(info.name for name, info in outputs if name.startswith("num_"))
        self._options: tf.compat.v1.RunOptions | None = None
        self._making_calls = threading.Lock()
        self._kept_calls = functools.lru_cache(_KEPT_CALLS)(self._make_call)

    def limit_runs(self, seconds: float) -> None:
        """Limits the time of each `run` from now on."""
        self._options = tf.compat.v1.RunOptions(timeout_in_ms=math.ceil(seconds * 1000))

    def run(self, feeds: Arrays, fetches: Sequence[str]) -> dict[str, np.ndarray]:
        """Computes tensors.

        Args:
          feeds: maps tensor names to values.

        Returns:
          A map from tensor names to values.

        Raises:
          tf.errors.OpError, ServingError: an operation fails, or the run takes longer than `limit_runs` allows.
        """
        fed, fetched = tuple(sorted(feeds)), tuple(sorted(set(fetches)))
        with self._making_calls:  # a graph accepts new callables from only one thread at a time
            call = self._kept_calls(fed, fetched)
        try:
            values = call(*(feeds[name] for name in fed), options=self._options)
        except UnicodeDecodeError as error:  # TensorFlow's error message quotes bytes that are not UTF-8
            raise invalid(reason(error.object.decode("utf-8", "replace"))) from error
        return dict(zip(fetched, values, strict=True))

    def _make_call(self, fed: tuple[str, ...], fetched: tuple[str, ...]):
        return self._session.make_callable(list(fetched), feed_list=list(fed))

    def close(self) -> None:
        """Frees the weights. No `run` may be active, and none may start afterwards."""
        session, self._session = self._session, None
        self._kept_calls = None  # the cache refers to this object
        session.close()
        del session
        gc.collect()  # otherwise the graph, which refers to itself, would stay in memory until the next full collection
        _return_freed_memory()


def _return_freed_memory() -> None:
    """Makes glibc return freed memory to the system, which it otherwise keeps for each thread that allocated memory."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
