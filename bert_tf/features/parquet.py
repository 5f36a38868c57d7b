"""Writes vectors to Parquet files; needs PyArrow."""

from collections.abc import Iterable, Sequence

import numpy as np

from bert_tf.core.errors import InputError
from bert_tf.features.chunks import TOKEN_COLUMNS, Chunk, Facts, Format
from bert_tf.jobs import local_files

try:
    import pyarrow
    import pyarrow.parquet
except ImportError as error:
    raise InputError("--output_format=parquet needs PyArrow: pip install pyarrow, or choose tfrecord or npz") from error


class Parquet(Format):
    """One row per text: `line`, `id`, and a column of vectors for each layer, such as `layer_-1`.

    If the vectors are not pooled, each column of vectors contains lists with one vector per token, and there are also
    the columns `input_ids`, `segment_ids`, `words`, `starts` and `ends`.
    """

    def write(self, path: str, chunks: Iterable[Chunk]) -> None:
        schema = _schema(self)
        with local_files.written(path) as temporary, _writer(temporary, schema) as file:
            for chunk in chunks:
                file.write_table(pyarrow.Table.from_arrays(_arrays(chunk, self), schema=schema))

    def join(self, path: str, parts: Sequence[str], facts: Facts) -> None:
        with local_files.written(path) as temporary, _writer(temporary, _schema(self)) as file:
            for part in parts:
                with local_files.read(part) as local, pyarrow.parquet.ParquetFile(local) as source:
                    for group in range(source.num_row_groups):
                        file.write_table(source.read_row_group(group))


def _writer(path: str, schema: pyarrow.Schema) -> pyarrow.parquet.ParquetWriter:
    # Floats rarely repeat, so a dictionary would only take time.
    return pyarrow.parquet.ParquetWriter(path, schema, use_dictionary=False)


def _vector(output: Format) -> pyarrow.DataType:
    kind = pyarrow.float16() if output.settings.dtype == "float16" else pyarrow.float32()
    return pyarrow.list_(kind, output.vector_size)


def _schema(output: Format) -> pyarrow.Schema:
    fields = [("line", pyarrow.int64()), *([("id", pyarrow.string())] if output.has_ids else [])]
    vector = _vector(output)
    if not output.is_pooled:
        fields += [(name, pyarrow.list_(pyarrow.int32())) for name in TOKEN_COLUMNS]
        vector = pyarrow.list_(vector)
    return pyarrow.schema([*fields, *((f"layer_{layer}", vector) for layer in output.layers)])


def _arrays(chunk: Chunk, output: Format) -> list[pyarrow.Array]:
    arrays = [pyarrow.array(chunk.lines)]
    if output.has_ids:
        arrays.append(pyarrow.array([str(each) for each in chunk.ids], pyarrow.string()))
    splits = pyarrow.array(chunk.rows.splits.astype(np.int32))

    def of_texts(tokens: pyarrow.Array) -> pyarrow.Array:
        return pyarrow.ListArray.from_arrays(splits, tokens)

    if not output.is_pooled:
        arrays += [of_texts(pyarrow.array(getattr(chunk.rows, name))) for name in TOKEN_COLUMNS]
    for index in range(len(output.layers)):
        flat = pyarrow.array(np.ascontiguousarray(chunk.values[:, index]).reshape(-1))
        vectors = pyarrow.FixedSizeListArray.from_arrays(flat, output.vector_size)
        arrays.append(vectors if output.is_pooled else of_texts(vectors))
    return arrays
