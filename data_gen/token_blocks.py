"""Stores the corpus as token ids on disk, so that each chunk is tokenized only once.

Many work units read the ids of a chunk, because random next sentences come from a window of many chunks.
"""

import dataclasses
import functools
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.core import storage
from bert_tf.tokenization import BertTokenizer
from data_gen.documents import CHUNK_BYTES, Document, Source, read_documents
from data_gen.sentence_pairs import Window
from data_gen.settings import GeneratorSettings

# Characters per call of the tokenizer, which takes about 50 bytes of memory per character.
_CHARACTERS_PER_CALL = 1 << 19


@dataclasses.dataclass(frozen=True)
class TokenBlock:
    """One tokenized chunk of the corpus."""

    path: str  # the file with the token ids
    # `documents`, `sentences`, `tokens`: number of each; documents and sentences without tokens do not count
    documents: int
    sentences: int
    tokens: int
    unknown: int  # number of tokens that are [UNK]
    text_bytes: int  # size of the sentences in UTF-8
    # the files that have more [UNK] than other tokens in this block
    unknown_files: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class TokenizeTask:
    """The task to tokenize adjacent sources."""

    sources: tuple[Source, ...]  # the sources, in corpus order
    settings: GeneratorSettings
    vocab_sha256: str  # SHA-256 of the vocabulary's tokens
    prefix: str  # start of the paths of all output files

    @property
    def result_path(self) -> str:
        """The file that marks the task as finished and contains its result."""
        return f"{self.prefix}.json"

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return sum(source.end - source.start for source in self.sources)


def group_sources(sources: Sequence[Source]) -> list[tuple[Source, ...]]:
    """Groups adjacent small sources up to CHUNK_BYTES, so that many small files do not make many blocks."""
    groups: list[list[Source]] = []
    size = 0
    for source in sources:
        length = source.end - source.start
        if not groups or size + length > CHUNK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(source)
        size += length
    return [tuple(group) for group in groups]


def tokenize_sources(task: TokenizeTask) -> list[TokenBlock]:
    settings = task.settings
    tokenizer = _tokenizer(settings.vocab_file, task.vocab_sha256, settings.do_lower_case, settings.strip_accents)
    blocks = []
    for index, (documents, files) in enumerate(_collected(task)):
        block = _write_block(f"{task.prefix}-{index:05d}.npz", documents, files, tokenizer)
        if block.documents:
            blocks.append(block)
    storage.write_json(task.result_path, [dataclasses.asdict(block) for block in blocks])
    return blocks


def _collected(task: TokenizeTask) -> Iterator[tuple[list[Document], list[str]]]:
    """Yields the task's documents in lists of about CHUNK_BYTES of text, with the file of each document."""
    documents: list[Document] = []
    files: list[str] = []
    size, settings = 0, task.settings
    for source in task.sources:
        for chunk in read_documents(source, settings.input_format, settings.text_field, language=settings.language):
            documents += chunk
            files += [source.path] * len(chunk)
            size += sum(len(sentence) for document in chunk for sentence in document)
            if size > CHUNK_BYTES // 2:
                yield documents, files
                documents, files, size = [], [], 0
    if documents:
        yield documents, files


def read_blocks(task: TokenizeTask) -> list[TokenBlock] | None:
    """Returns the result of a task that an earlier run finished; None if the task is unfinished."""
    if not tf.io.gfile.exists(task.result_path):
        return None
    with tf.io.gfile.GFile(task.result_path) as file:
        blocks = [TokenBlock(**entries) for entries in json.load(file)]
    return blocks if all(tf.io.gfile.exists(block.path) for block in blocks) else None


def load_window(blocks: Sequence[TokenBlock], job: str) -> Window:
    """Loads adjacent blocks as one window.
    `job`: id of the job; part of the cache key, because blocks of an earlier job may have the same path."""
    arrays = [_load_block(block.path, job) for block in blocks]
    tokens, sentences, documents = (np.concatenate(parts) for parts in zip(*arrays, strict=True))
    return Window(tokens, _starts(sentences), _starts(documents))


@functools.lru_cache(maxsize=1)
def _tokenizer(vocab_file: str, vocab_sha256: str, do_lower_case: bool, strip_accents: bool) -> BertTokenizer:
    del vocab_sha256  # part of the cache key, because the file may have changed
    return BertTokenizer(vocab_file, do_lower_case, strip_accents)


# Adjacent work units share most blocks of their windows, so the cache holds at least one window. A window of 64 MiB of
# text has about 33 blocks of 1 MB of ids each.
@functools.lru_cache(maxsize=40)
def _load_block(path: str, job: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    del job
    with tf.io.gfile.GFile(path, "rb") as file, np.load(io.BytesIO(file.read())) as arrays:
        return arrays["tokens"], arrays["sentences"], arrays["documents"]


def _write_block(
    path: str, documents: Sequence[Document], files: Sequence[str], tokenizer: BertTokenizer
) -> TokenBlock:
    tokens, sentence_lengths = _encode([s for document in documents for s in document], tokenizer)
    # Drop sentences without tokens, then documents without sentences.
    kept = sentence_lengths > 0
    document_of = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    sizes = np.bincount(document_of[kept], minlength=len(documents))
    sizes, lengths = sizes[sizes > 0], sentence_lengths[kept]
    if len(sizes):
        buffer = io.BytesIO()
        np.savez(buffer, tokens=tokens, sentences=lengths.astype(np.int32), documents=sizes.astype(np.int32))
        with storage.atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
            file.write(buffer.getvalue())
    text_bytes = sum(len(sentence.encode()) + 1 for document in documents for sentence in document)
    is_unknown = tokens == tokenizer.unk_id
    unknown = int(np.count_nonzero(is_unknown))
    unknown_files = _mostly_unknown(files, document_of, sentence_lengths, is_unknown) if unknown else []
    return TokenBlock(path, len(sizes), len(lengths), len(tokens), unknown, text_bytes, unknown_files)


def _mostly_unknown(
    files: Sequence[str], document_of: np.ndarray, sentence_lengths: np.ndarray, is_unknown: np.ndarray
) -> list[str]:
    """Returns the files that have more [UNK] than other tokens."""
    names, file_of = np.unique(np.array(files), return_inverse=True)
    file_of_token = np.repeat(file_of[document_of], sentence_lengths)
    tokens = np.bincount(file_of_token, minlength=len(names))
    unknown = np.bincount(file_of_token, is_unknown, minlength=len(names))
    return names[2 * unknown > tokens].tolist()


def _encode(sentences: Sequence[str], tokenizer: BertTokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Returns the concatenated token ids of all sentences, and the length of each sentence."""
    dtype = np.uint16 if len(tokenizer.vocabulary) <= 1 << 16 else np.int32
    parts = [_parts(sentence) for sentence in sentences]
    texts = [text for texts in parts for text in texts]
    sizes = np.cumsum([len(text) for text in texts], dtype=np.int64)
    edges = np.searchsorted(sizes, np.arange(_CHARACTERS_PER_CALL, sizes[-1] if texts else 0, _CHARACTERS_PER_CALL))
    tokens, lengths = [np.zeros(0, dtype)], [np.zeros(0, np.int64)]
    for start, end in itertools.pairwise([0, *edges.tolist(), len(texts)]):
        # Run eagerly: tracing a graph would take longer than tokenizing a small corpus.
        encoded = tokenizer.encode(tf.constant(texts[start:end], tf.string, [end - start]))
        tokens.append(encoded.values.numpy().astype(dtype))
        lengths.append(encoded.row_lengths().numpy())
    part_of = np.repeat(np.arange(len(sentences)), [len(texts) for texts in parts])
    by_sentence = np.bincount(part_of, np.concatenate(lengths), minlength=len(sentences))
    return np.concatenate(tokens), by_sentence.astype(np.int64)


def _parts(sentence: str) -> list[str]:
    """Splits a sentence at spaces if it is too long for one call; the split does not change the tokens."""
    if len(sentence) <= _CHARACTERS_PER_CALL:
        return [sentence]
    # Split only at ASCII spaces: the tokenizer drops some characters that Python treats as white space.
    return re.findall(rf"(?s).{{1,{_CHARACTERS_PER_CALL}}}(?![^ ])|[^ ]+", sentence)


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.append(0, np.cumsum(lengths, dtype=np.int64))
