"""Corpora as streams of documents.

The original's format: one sentence a line, a blank line between documents; a document also ends
with its file.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.tokenization import BertTokenizer

_LINES_PER_BATCH = 1024

Document = list[np.ndarray]


def read_lines(files: Sequence[str]) -> Iterator[bytes]:
    """Every line of every file, stripped of white space at its ends; an empty line ends each file."""
    for path in files:
        with tf.io.gfile.GFile(path, "rb") as file:
            for line in file:
                # white space as Unicode has it, as in the original: a line of U+3000 is blank
                yield line.decode("utf-8", errors="ignore").strip().encode("utf-8")
        yield b""


def read_batches(files: Sequence[str]) -> Iterator[list[bytes]]:
    """The lines of `read_lines`, some thousand at a time: what the tokenizer takes at its best speed."""
    batch = []
    for line in read_lines(files):
        batch.append(line)
        if len(batch) == _LINES_PER_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def read_documents(files: Sequence[str], tokenizer: BertTokenizer) -> Iterator[Document]:
    """Documents as lists of sentences, each an int32 array of ids.

    Sentences without a piece are left out, and so are documents without a sentence.
    """
    encode = tf.function(tokenizer.encode, input_signature=[tf.TensorSpec([None], tf.string)])
    document: Document = []
    for batch in read_batches(files):
        encoded = encode(tf.constant(batch))
        ids, splits = encoded.values.numpy(), encoded.row_splits.numpy()
        for index, line in enumerate(batch):
            start, end = splits[index], splits[index + 1]
            if end > start:
                document.append(ids[start:end])
            elif not line and document:
                yield document
                document = []
    if document:
        yield document
