"""What the workers of an extraction do: the vectors of a source of text, and a shard of such parts."""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.features import model
from bert_tf.features.chunks import Chunk, Facts, Output
from bert_tf.features.extractor import FeatureExtractor
from bert_tf.features.formats import find_format
from bert_tf.features.rows import Rows
from bert_tf.features.texts import Text, read_texts
from bert_tf.settings.features import FeaturesSettings, VectorSettings
from jobs.parts import PartTask, Program, ShardTask


@functools.lru_cache(maxsize=1)
def _extractor(settings: VectorSettings, weights_sha256: str) -> FeatureExtractor:
    """Returns the extractor of this process, which loads the weights once."""
    return FeatureExtractor.of_settings(settings)


def _write(task: PartTask) -> Facts:
    """Writes the vectors of a source."""
    extractor, settings = _extractor(task.settings, task.weights_sha256), task.settings
    output = _output(settings, extractor.hidden_size, extractor.tokenizer.vocabulary)
    counts = {"facts": Facts(lines=task.source.lines)}

    def chunks() -> Iterator[Chunk]:
        for texts, rows, values in extractor.vectors(read_texts(task.source, settings)):
            counts["facts"] += _count(texts, rows)
            lines = np.array([text.line for text in texts], np.int64)
            ids = [text.id for text in texts] if output.has_ids else None
            yield Chunk(lines, ids, rows, extractor.pooled(values, rows).astype(settings.dtype))

    find_format(settings.output_format).write(task.path, chunks(), output)
    return counts["facts"]


def _count(texts: Sequence[Text], rows: Rows) -> Facts:
    return Facts(
        texts=len(texts),
        tokens=len(rows.input_ids),
        truncated=int(rows.is_truncated.sum()),
        damaged=sum(text.is_damaged for text in texts),
        longest_id=max((len(str(text.id)) for text in texts if text.id is not None), default=0),
    )


def _output(settings: FeaturesSettings, hidden_size: int, vocabulary: Sequence[str]) -> Output:
    return Output(
        vocabulary,
        settings.layer_numbers,
        hidden_size,
        settings.dtype,
        settings.is_pooled,
        bool(settings.id_field),
        settings.alignment,
    )


def _files(task: PartTask) -> list[str]:
    return find_format(task.settings.output_format).files(task.path, _output(task.settings, 0, ()))


def _join(task: ShardTask) -> None:
    """Joins parts to a shard."""
    output = _output(task.settings, model.config_of(task.settings).hidden_size, ())
    find_format(task.settings.output_format).join(task.path, task.parts, task.facts, output)


PROGRAM = Program(
    "extracting", Facts, _write, _files, _join,
    ", or give a more compact --output_format or --dtype, or fewer --layers",
)  # fmt: skip
