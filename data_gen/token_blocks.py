"""Text as ids on disk: every chunk of the corpus is tokenized once, and read as often as it is needed.

A random next sentence comes from anywhere in a window of many chunks; so the ids of a chunk are wanted
by many work units.
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

from bert_tf.tokenization import BertTokenizer
from data_gen.documents import CHUNK_BYTES, Document, Source, read_documents
from data_gen.sentence_pairs import Window
from tfrecords import writer

# What is tokenized at once: a call takes some 50 bytes of memory a character.
_CHARACTERS_PER_CALL = 1 << 19


@dataclasses.dataclass(frozen=True)
class Block:
    """One chunk of the corpus as ids, and what is in it.

    Attributes:
      path: the file of ids.
      documents, sentences, tokens: how many it holds; documents without a piece are left out.
      unknown: how many of the tokens are [UNK].
      text_bytes: size of the sentences as text.
    """

    path: str
    documents: int
    sentences: int
    tokens: int
    unknown: int
    text_bytes: int


@dataclasses.dataclass(frozen=True)
class TokenizeTask:
    """Neighbouring sources to tokenize: what to read and how, and the path that the task's files begin with."""

    sources: tuple[Source, ...]
    input_format: str
    text_field: str
    vocab_file: str
    vocab_sha256: str
    do_lower_case: bool
    prefix: str

    @property
    def result_path(self) -> str:
        """The file that says that the task is done, and holds its result."""
        return f"{self.prefix}.json"

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(source.end - source.start for source in self.sources)


def group_sources(sources: Sequence[Source]) -> list[tuple[Source, ...]]:
    """Neighbouring sources of CHUNK_BYTES together, so that many small files are no more blocks than a large one."""
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


def tokenize_sources(task: TokenizeTask) -> tuple[TokenizeTask, list[Block]]:
    """Tokenizes sources into blocks, on disk when this returns with them.

    Raises:
      InputError: a source cannot be read.
    """
    tokenizer = _tokenizer(task.vocab_file, task.vocab_sha256, task.do_lower_case)
    blocks = []
    for index, documents in enumerate(_collected(task)):
        block = _write_block(f"{task.prefix}-{index:05d}.npz", documents, tokenizer)
        if block.documents:
            blocks.append(block)
    writer.write_text(task.result_path, json.dumps([dataclasses.asdict(block) for block in blocks]))
    return task, blocks


def _collected(task: TokenizeTask) -> Iterator[list[Document]]:
    """The task's documents, in lists of about CHUNK_BYTES of text."""
    documents: list[Document] = []
    size = 0
    for source in task.sources:
        for chunk in read_documents(source, task.input_format, task.text_field):
            documents += chunk
            size += sum(len(sentence) for document in chunk for sentence in document)
            if size > CHUNK_BYTES // 2:
                yield documents
                documents, size = [], 0
    if documents:
        yield documents


def read_blocks(task: TokenizeTask) -> list[Block] | None:
    """The result of a task that an earlier run finished; None if it did not."""
    if not tf.io.gfile.exists(task.result_path):
        return None
    with tf.io.gfile.GFile(task.result_path) as file:
        blocks = [Block(**entries) for entries in json.load(file)]
    return blocks if all(tf.io.gfile.exists(block.path) for block in blocks) else None


def load_window(blocks: Sequence[Block], job: str) -> Window:
    """Neighbouring blocks as one window.

    Args:
      blocks: in their order.
      job: what the blocks belong to; keeps those of an earlier run under the same name out of the cache.
    """
    arrays = [_load_block(block.path, job) for block in blocks]
    tokens, sentences, documents = (np.concatenate(parts) for parts in zip(*arrays, strict=True))
    return Window(tokens, _starts(sentences), _starts(documents))


@functools.lru_cache(maxsize=1)
def _tokenizer(vocab_file: str, vocab_sha256: str, do_lower_case: bool) -> BertTokenizer:
    del vocab_sha256  # part of the key: the file may have changed
    return BertTokenizer(vocab_file, do_lower_case)


# neighbouring units share most of their windows; a window of 64 MiB is some 33 blocks of 1 MB each
@functools.lru_cache(maxsize=40)
def _load_block(path: str, job: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    del job
    with tf.io.gfile.GFile(path, "rb") as file, np.load(io.BytesIO(file.read())) as arrays:
        return arrays["tokens"], arrays["sentences"], arrays["documents"]


def _write_block(path: str, documents: Sequence[Document], tokenizer: BertTokenizer) -> Block:
    tokens, sentence_lengths = _encode([s for document in documents for s in document], tokenizer)
    # sentences without a piece are left out, then documents without a sentence
    kept = sentence_lengths > 0
    document_of = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    sizes = np.bincount(document_of[kept], minlength=len(documents))
    sizes, lengths = sizes[sizes > 0], sentence_lengths[kept]
    if len(sizes):
        buffer = io.BytesIO()
        np.savez(buffer, tokens=tokens, sentences=lengths.astype(np.int32), documents=sizes.astype(np.int32))
        with writer.atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
            file.write(buffer.getvalue())
    text_bytes = sum(len(sentence) + 1 for document in documents for sentence in document)
    unknown = int(np.count_nonzero(tokens == tokenizer.unk_id))
    return Block(path, len(sizes), len(lengths), len(tokens), unknown, text_bytes)


def _encode(sentences: Sequence[str], tokenizer: BertTokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Ids of all sentences, one after the other, and the length of each."""
    dtype = np.uint16 if len(tokenizer.vocabulary) <= 1 << 16 else np.int32
    parts = [_parts(sentence) for sentence in sentences]
    texts = [text for texts in parts for text in texts]
    sizes = np.cumsum([len(text) for text in texts], dtype=np.int64)
    edges = np.searchsorted(sizes, np.arange(_CHARACTERS_PER_CALL, sizes[-1] if texts else 0, _CHARACTERS_PER_CALL))
    tokens, lengths = [np.zeros(0, dtype)], [np.zeros(0, np.int64)]
    for start, end in itertools.pairwise([0, *edges.tolist(), len(texts)]):
        # eagerly: tracing a graph would take longer than a small corpus does
        encoded = tokenizer.encode(tf.constant(texts[start:end], tf.string, [end - start]))
        tokens.append(encoded.values.numpy().astype(dtype))
        lengths.append(encoded.row_lengths().numpy())
    part_of = np.repeat(np.arange(len(sentences)), [len(texts) for texts in parts])
    by_sentence = np.bincount(part_of, np.concatenate(lengths), minlength=len(sentences))
    return np.concatenate(tokens), by_sentence.astype(np.int64)


def _parts(sentence: str) -> list[str]:
    """A sentence, cut at spaces where it is too long for one call; words are cut into pieces each by itself."""
    if len(sentence) <= _CHARACTERS_PER_CALL:
        return [sentence]
    # only at an ASCII space: others that Python takes for white space the tokenizer may drop within a word
    return re.findall(rf"(?s).{{1,{_CHARACTERS_PER_CALL}}}(?![^ ])|[^ ]+", sentence)


def _starts(lengths: np.ndarray) -> np.ndarray:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
