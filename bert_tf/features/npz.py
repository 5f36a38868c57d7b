"""Writes vectors to NumPy's npz files, column by column in bounded memory.

Letters: N texts, T tokens.
"""

import contextlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.features.chunks import TOKEN_COLUMNS, Chunk, Facts, Format
from bert_tf.jobs import local_files

_BLOCK_BYTES = 1 << 20
# A zip archive contains dates. A fixed date (the earliest date of the format) keeps the bytes of a shard reproducible.
_DATE = (1980, 1, 1, 0, 0, 0)


class Npz(Format):
    """A file with arrays for all texts of a shard.

    The arrays are:

    - `lines`: int64 [N].
    - `layers`: int64 [L].
    - `values`: the vectors, [T, L, H]; [N, L, H] if pooled.
    - `id`: strings [N], if texts have ids.

    If the vectors are not pooled, there are also:

    - `splits`: int64 [N + 1], the start of each text's tokens, then the end of the last text.
    - `input_ids`, `segment_ids`, `words`, `starts`, `ends`: int32 [T].
    """

    def files(self, path: str) -> list[str]:
        """Returns the files of a part: one file per column, which contains raw values."""
        return [f"{path}.{name}" for name in self._columns()]

    def _columns(self) -> dict[str, np.dtype]:
        """Maps the names of a part's columns to their dtypes."""
        columns = {"lines": np.dtype(np.int64), "values": np.dtype(self.settings.dtype)}
        if not self.is_pooled:
            columns |= {"lengths": np.dtype(np.int64)} | dict.fromkeys(TOKEN_COLUMNS, np.dtype(np.int32))
        return columns | ({"id": np.dtype("U1")} if self.has_ids else {})

    def write(self, path: str, chunks: Iterable[Chunk]) -> None:
        with contextlib.ExitStack() as stack:
            files = {
                name: stack.enter_context(_opened(file))
                for name, file in zip(self._columns(), self.files(path), strict=True)
            }
            for chunk in chunks:
                for name, file in files.items():
                    file.write(_values(chunk, name))

    def join(self, path: str, parts: Sequence[str], facts: Facts) -> None:
        columns = self._columns()
        shapes = dict.fromkeys(TOKEN_COLUMNS, (facts.tokens,))
        vectors = facts.texts if self.is_pooled else facts.tokens
        shapes["values"] = (vectors, len(self.layers), self.vector_size)
        with local_files.written(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            _add(archive, "layers", np.dtype(np.int64), (len(self.layers),), [np.array(self.layers).tobytes()])
            for name, dtype in columns.items():
                blocks = _blocks([f"{part}.{name}" for part in parts])
                if name == "lengths":
                    _add(archive, "splits", dtype, (facts.texts + 1,), _cumulated(blocks))
                elif name == "id":
                    text = np.dtype(f"<U{max(1, facts.longest_id)}")
                    _add(archive, name, text, (facts.texts,), _strings([f"{part}.id" for part in parts], text))
                else:
                    _add(archive, name, dtype, shapes.get(name, (facts.texts,)), blocks)


def _values(chunk: Chunk, name: str) -> bytes:
    if name == "id":
        return "".join(json.dumps(str(each)) + "\n" for each in chunk.ids).encode()
    if name == "lengths":
        return chunk.rows.lengths.tobytes()
    return np.ascontiguousarray(getattr(chunk.rows if name in TOKEN_COLUMNS else chunk, name)).tobytes()


@contextlib.contextmanager
def _opened(path: str) -> Iterator:
    with local_files.written(path) as temporary, open(temporary, "wb") as file:
        yield file


def _blocks(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        with tf.io.gfile.GFile(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield block


def _cumulated(blocks: Iterable[bytes]) -> Iterator[bytes]:
    total = np.zeros(1, np.int64)
    yield total.tobytes()
    for block in blocks:
        sums = total + np.cumsum(np.frombuffer(block, np.int64))
        total = sums[-1:]
        yield sums.tobytes()


def _strings(paths: Sequence[str], dtype: np.dtype) -> Iterator[bytes]:
    for path in paths:
        with tf.io.gfile.GFile(path, "rb") as file:
            texts = [json.loads(line) for line in file.read().splitlines()]
        yield np.array(texts, dtype).tobytes()


def _add(archive: zipfile.ZipFile, name: str, dtype: np.dtype, shape: tuple[int, ...], blocks: Iterable[bytes]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with archive.open(zipfile.ZipInfo(f"{name}.npy", _DATE), "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(block)
