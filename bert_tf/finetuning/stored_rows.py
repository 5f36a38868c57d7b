"""Arrays of any number of values per row, in one NumPy file that is memory-mapped.

Letters: P maximum number of values of a row.
"""

import dataclasses
import functools
import io
from typing import BinaryIO

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class StoredRows:
    """The values of a split's rows, such as the activations of each token."""

    path: str  # path of the file with an array of the shape [values of all rows, ...]
    counts: np.ndarray  # int64 [N], number of values of each row
    starts: np.ndarray  # int64 [N], index of each row's first value in the array
    shape: tuple[int, ...]  # shape of the values of a row with padding, (P, ...)
    dtype: type  # type of the array

    @classmethod
    def open(cls, path: str, counts: np.ndarray, dtype: type) -> "StoredRows":
        """Opens a file whose rows follow one another, with `counts` values each."""
        shape = int(counts.max()), *_open(path).shape[1:]
        return cls(path, counts, np.cumsum(counts) - counts, shape, dtype)

    @property
    def array_shape(self) -> tuple[int, ...]:
        return int(self.counts.sum()), *self.shape[1:]

    @property
    def size(self) -> int:
        """Size of the array, in bytes."""
        return int(np.prod(self.array_shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def of_rows(self, rows: tf.Tensor) -> tf.Tensor:
        """Reads the values of rows, [B, P, ...]; 0 at padding. The function can be called in the graph of a dataset.
        `rows`: integer [B], indices of rows."""
        values = tf.numpy_function(self._read, [rows], tf.as_dtype(self.dtype))
        return tf.ensure_shape(values, [rows.shape[0], *self.shape])

    def is_there(self) -> bool:
        try:
            return tf.io.gfile.exists(self.path) and _open(self.path).shape == self.array_shape
        except (ValueError, EOFError, OSError):
            return False

    def write_header(self, file: BinaryIO) -> None:
        """Writes what precedes the values of all rows in the file."""
        header = {"descr": np.dtype(self.dtype).str, "fortran_order": False, "shape": self.array_shape}
        np.lib.format.write_array_header_1_0(file, header)

    def _read(self, rows: np.ndarray) -> np.ndarray:
        values = np.zeros((len(rows), *self.shape), self.dtype)
        for place, row in enumerate(rows):
            start, count = self.starts[row], self.counts[row]
            values[place, :count] = self._array[start : start + count]
        return values

    @functools.cached_property
    def _array(self) -> np.ndarray:
        return _open(self.path)


def _open(path: str) -> np.ndarray:
    """Opens an array. A local file is memory-mapped, so that only the values that are read need memory."""
    if "://" not in path:
        return np.load(path, mmap_mode="r")
    with tf.io.gfile.GFile(path, "rb") as file:
        return np.load(io.BytesIO(file.read()))
