"""Computes vectors of texts in Python: one vector per token, or one pooled vector per text.

Paper: section 5.3.

Letters: T tokens of a text.
"""

import copy
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import numpy as np

from bert_tf import checkpoint_tokenizer, checkpoints
from bert_tf.checkpoint_formats import sentence_transformers
from bert_tf.core.command_line import of_keywords
from bert_tf.core.errors import InputError
from bert_tf.core.json_lines import without_surrogates
from bert_tf.core.progress_bar import ProgressBar
from bert_tf.features import model
from bert_tf.features.packed_encoder import PackedEncoder
from bert_tf.features.rows import RowMaker, TokenRows
from bert_tf.features.texts import Text
from bert_tf.settings.features import VectorSettings

# These limits bound memory: the number of texts and of characters that are tokenized together, and the size in bytes
# of the vectors that are computed together.
_TEXTS, _TEXT_CHARACTERS, _VALUE_BYTES = 2048, 1 << 20, 128 << 20
# A small number of texts takes too little time for a progress bar.
_SECONDS_BEFORE_BAR = 2.0


@dataclasses.dataclass(frozen=True)
class TokenFeatures:
    """The tokens of one text.

    Attributes:
      tokens: T strings, including [CLS] and [SEP].
      values: float32 [T, L, H], the layers in the given order.
      words: int32 [T], the index of the token's word among the words of its text; -1 on [CLS] and [SEP].
      starts: int32 [T], the index of the token's first character in its text; -1 on [CLS] and [SEP].
      ends: int32 [T], the index after the token's last character; -1 on [CLS] and [SEP].
      segment_ids: int32 [T], 1 on tokens of the second text of a pair.
    """

    tokens: list[str]
    values: np.ndarray
    words: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    segment_ids: np.ndarray


class FeatureExtractor:
    """A frozen encoder that computes vectors of texts. Layers above the highest requested layer are not computed.

    Args:
      checkpoint: a checkpoint of any format; see `--init_checkpoint` of `extract_features`.
      **settings: flags of `extract_features` that affect the vectors, without the dashes, such as `layers="-1,-2"`,
        `max_seq_length` or `pooling="mean"`.

    Attributes:
      settings: the settings, completed from the checkpoint's folder.
      tokenizer: the checkpoint's tokenizer.
      layers: the layers of the settings, in the given order.
      hidden_size: hidden size H of the encoder.
      vector_size: number of values of a vector: H, or `dimensions`.

    Raises:
      InputError: there is no checkpoint or vocabulary, or a setting is wrong.
    """

    def __init__(self, checkpoint: str, **settings):
        keywords = {"init_checkpoint": os.fspath(checkpoint)} | settings
        self._load(model.resolve(of_keywords(VectorSettings, keywords)))

    @classmethod
    def of_settings(cls, settings: VectorSettings) -> "FeatureExtractor":
        """Returns an extractor for settings from `model.resolve`."""
        extractor = cls.__new__(cls)
        extractor._load(settings)
        return extractor

    @classmethod
    def of_texts(cls, checkpoint: str, **settings) -> "FeatureExtractor":
        """Returns an extractor of one vector per text, pooled as the checkpoint's files state, else by the mean."""
        folder = checkpoints.open_checkpoint(os.fspath(checkpoint)).folder
        pooling = {} if sentence_transformers.is_stated(folder) else {"pooling": "mean"}
        return cls(checkpoint, **{"sentence_vectors": not pooling} | pooling | settings)

    @property
    def prompts(self) -> dict[str, str]:
        """The texts that the checkpoint's files offer to write before each text, by name."""
        return sentence_transformers.read_prompts(self.folder)

    @property
    def folder(self) -> str:
        """The checkpoint's folder."""
        return checkpoints.open_checkpoint(self.settings.init_checkpoint).folder

    def with_prompt(
        self, prompt_name: str, dimensions: int | None = None, batch_size: int | None = None
    ) -> "FeatureExtractor":
        """Returns an extractor with the same weights, and other values of these settings.

        Args:
          batch_size: None for the batch size of this extractor.

        Raises:
          InputError: the checkpoint lacks the prompt, its vectors are shorter, or the batch size is not positive.
        """
        changes = {"prompt_name": prompt_name, "prompt": None, "dimensions": dimensions}
        changes["batch_size"] = self.settings.batch_size if batch_size is None else batch_size
        other = copy.copy(self)
        other._pool_by(model.resolve(dataclasses.replace(self.settings, **changes)))
        other._encode = self._encode.with_batches_of(other.settings.batch_size)
        return other

    def _load(self, settings: VectorSettings) -> None:
        self.layers = settings.layer_numbers
        self.tokenizer = checkpoint_tokenizer.tokenizer(settings)
        encoder = model.load(settings)
        self.hidden_size = encoder.config.hidden_size
        length = settings.max_seq_length
        layers = model.layer_indices(settings, encoder.config)
        self._encode = PackedEncoder(encoder, layers, length, settings.batch_size)
        self._make_rows = RowMaker(self.tokenizer, length)
        self._pool_by(settings)

    def _pool_by(self, settings: VectorSettings) -> None:
        self.settings, self.vector_size = settings, settings.dimensions or self.hidden_size
        self._pool = model.pooling_of(settings, self.folder) if settings.is_pooled else None
        self._prompt = settings.prompt or ""

    def tokens(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list[TokenFeatures]:
        """Returns the tokens of N texts and their vectors.

        Args:
          texts: strings, or pairs of strings.

        Raises:
          InputError: a text is not a string or a pair.
        """
        features = []
        for _, rows, values in self._all(texts):
            for start, end in zip(rows.splits[:-1], rows.splits[1:], strict=True):
                taken = slice(start, end)
                columns = (rows.words, rows.starts, rows.ends, rows.segment_ids)
                tokens = self.tokenizer.to_tokens(rows.input_ids[taken])
                features.append(TokenFeatures(tokens, values[taken], *(column[taken] for column in columns)))
        return features

    def sentences(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> np.ndarray:
        """Returns pooled vectors of N texts, one per text and layer: float32 [N, L, H], or [N, H] for a single layer.

        With the setting `dimensions`, the vectors have this size instead of H.

        Raises:
          InputError: the extractor has no pooling, or a text is not a string or a pair.
        """
        if self._pool is None:
            raise InputError("the extractor has no pooling; give pooling='mean' or sentence_vectors=True")
        parts = [self._pool(values, rows.splits) for _, rows, values in self._all(texts)]
        layers = len(self.layers)
        pooled = np.concatenate([np.empty([0, layers, self.vector_size], np.float32), *parts])
        return pooled[:, 0] if layers == 1 else pooled

    def _all(self, texts: Sequence) -> Iterator[tuple[list[Text], TokenRows, np.ndarray]]:
        # Refuse types that would yield characters, keys or names of columns instead of texts.
        if isinstance(texts, (str, bytes, Mapping, Set)) or getattr(texts, "ndim", 1) != 1:
            raise InputError(
                f"texts: is of type {type(texts).__name__}; give a list of strings, or of pairs of strings"
            )
        return self._with_progress(texts if hasattr(texts, "__len__") else list(texts))

    def _with_progress(self, texts: Sequence) -> Iterator[tuple[list[Text], TokenRows, np.ndarray]]:
        with ProgressBar("extracting", len(texts), "texts", compiles=True, delay=_SECONDS_BEFORE_BAR) as progress:
            for group in self.vectors(_text(text, number) for number, text in enumerate(texts)):
                yield group
                progress.update(len(group[0]))

    def vectors(self, texts: Iterable[Text]) -> Iterator[tuple[list[Text], TokenRows, np.ndarray]]:
        """Yields groups of texts in the given order, with their rows and the vectors of all their tokens.

        Memory stays bounded for any number of texts.
        """
        most = max(1, _VALUE_BYTES // (4 * len(self.layers) * self.hidden_size))
        for group in _groups(texts):
            rows = self._make_rows([self._prompted(text) for text in group] if self._prompt else group)
            for taken in _slices(rows.splits, most):
                yield group[taken], rows[taken], self._encode(rows[taken])

    def _prompted(self, text: Text) -> Text:
        return dataclasses.replace(text, segments=(self._prompt + text.segments[0], *text.segments[1:]))

    def pooled(self, values: np.ndarray, rows: TokenRows) -> np.ndarray:
        """Returns the output for rows: pooled values [N, L, H] if the extractor pools, else the given values."""
        return values if self._pool is None else self._pool(values, rows.splits)


def _text(value: str | tuple[str, str], number: int) -> Text:
    segments = (value,) if isinstance(value, str) else value
    if not isinstance(segments, tuple | list) or len(segments) not in (1, 2):
        raise InputError(f"texts[{number}]: is {type(value).__name__}; give strings, or pairs of strings")
    if not all(isinstance(segment, str) for segment in segments):
        raise InputError(f"texts[{number}]: must contain only strings")
    return Text(number, tuple(map(without_surrogates, segments)), (0,) * len(segments))


def _groups(texts: Iterable[Text]) -> Iterator[list[Text]]:
    group, size = [], 0
    for text in texts:
        group.append(text)
        size += sum(map(len, text.segments))
        if len(group) == _TEXTS or size >= _TEXT_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _slices(splits: np.ndarray, most: int) -> Iterator[slice]:
    """Yields ranges of rows; a range has at most `most` tokens or consists of one row."""
    start = 0
    while start < len(splits) - 1:
        stop = max(start + 1, int(np.searchsorted(splits, splits[start] + most, side="right")) - 1)
        yield slice(start, stop)
        start = stop
