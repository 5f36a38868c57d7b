"""The output formats: JSON Lines, as in google-research/bert, and Parquet. Memory stays bounded.

Letters: T tokens.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_tf.core.errors import InputError
from bert_tf.features.rows import NOWHERE, TokenRows
from bert_tf.jobs import local_files
from bert_tf.settings.features import FeaturesSettings

# The original rounds to this number of decimals.
_DIGITS = 6
# Columns with an entry for each token.
_TOKEN_COLUMNS = ("input_ids", "segment_ids", "words", "starts", "ends")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some texts and their vectors, in the order of the input."""

    lines: np.ndarray  # int64 [N], the index of each text's line among the lines of all input files
    ids: Sequence[str | int] | None  # the texts' ids in the input; None if the input has no ids
    rows: TokenRows  # the tokens of the texts
    values: np.ndarray  # the vectors, float32 or float16 [T, L, H]; [N, L, H] if pooled


def check_library(settings: FeaturesSettings) -> None:
    """Refuses a format whose library is missing."""
    if settings.output_format == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise InputError("--output_format=parquet needs PyArrow: pip install pyarrow, or choose jsonl") from error


def write(path: str, chunks: Iterable[Chunk], settings: FeaturesSettings, vocabulary: Sequence[str]) -> None:
    """Writes a shard atomically."""
    with local_files.written(path) as temporary:
        if settings.output_format == "parquet":
            _write_parquet(temporary, chunks, settings)
            return
        with open(temporary, "w", encoding="utf-8") as file:
            for chunk in chunks:
                file.writelines(json.dumps(entry) + "\n" for entry in _objects(chunk, settings, vocabulary))


def _objects(chunk: Chunk, settings: FeaturesSettings, vocabulary: Sequence[str]) -> Iterator[dict]:
    rows = chunk.rows
    splits = np.arange(len(chunk.lines) + 1) if settings.is_pooled else rows.splits
    for number, line in enumerate(chunk.lines.tolist()):
        entry = {"linex_index": line}
        if chunk.ids is not None:
            entry["id"] = chunk.ids[number]
        taken = slice(splits[number], splits[number + 1])
        vectors = [
            [{"index": layer, "values": each} for layer, each in zip(settings.layer_numbers, values, strict=True)]
            for values in _rounded(chunk.values[taken])
        ]
        if settings.is_pooled:
            entry["layers"] = vectors[0]
        else:
            tokens = [{"token": vocabulary[id_]} for id_ in rows.input_ids[taken].tolist()]
            if settings.alignment:
                for token, where in zip(tokens, _alignments(rows, taken), strict=True):
                    token.update(where)
            entry["features"] = [token | {"layers": each} for token, each in zip(tokens, vectors, strict=True)]
        yield entry


def _rounded(values: np.ndarray) -> list:
    # The product with 10^6 is exact in float64, so the result equals Python's round().
    return np.round(values.astype(np.float64), _DIGITS).tolist()


def _alignments(rows: TokenRows, taken: slice) -> Iterator[dict]:
    names = {"segment": rows.segment_ids, "word": rows.words, "start": rows.starts, "end": rows.ends}
    for values in zip(*(column[taken].tolist() for column in names.values()), strict=True):
        yield {name: None if value == NOWHERE else value for name, value in zip(names, values, strict=True)}


def _write_parquet(path: str, chunks: Iterable[Chunk], settings: FeaturesSettings) -> None:
    """Writes one row per text: `linex_index`, `id`, and a column of vectors for each layer, such as `layer_-1`. If the
    vectors are not pooled, each column of vectors contains lists with one vector per token, and there are also the
    columns `input_ids`, `segment_ids`, `words`, `starts` and `ends`."""
    import pyarrow
    from pyarrow import parquet

    def columns_of(chunk: Chunk) -> dict[str, pyarrow.Array]:
        columns = {"linex_index": pyarrow.array(chunk.lines)}
        if chunk.ids is not None:
            columns["id"] = pyarrow.array([str(each) for each in chunk.ids], pyarrow.string())
        splits = pyarrow.array(chunk.rows.splits.astype(np.int32))
        if not settings.is_pooled:
            tokens = {name: pyarrow.array(getattr(chunk.rows, name)) for name in _TOKEN_COLUMNS}
            columns |= {name: pyarrow.ListArray.from_arrays(splits, each) for name, each in tokens.items()}
        for index, layer in enumerate(settings.layer_numbers):
            flat = pyarrow.array(np.ascontiguousarray(chunk.values[:, index]).reshape(-1))
            vectors = pyarrow.FixedSizeListArray.from_arrays(flat, chunk.values.shape[-1])
            is_list = not settings.is_pooled
            columns[f"layer_{layer}"] = pyarrow.ListArray.from_arrays(splits, vectors) if is_list else vectors
        return columns

    file = None
    try:
        for chunk in chunks:
            table = pyarrow.table(columns_of(chunk))
            # Floats rarely repeat, so a dictionary would only take time.
            file = file or parquet.ParquetWriter(path, table.schema, use_dictionary=False)
            file.write_table(table)
    finally:
        if file:
            file.close()
