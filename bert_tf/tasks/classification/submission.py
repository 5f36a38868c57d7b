"""Writes and reads prediction files in the format of the GLUE benchmark's server: https://gluebenchmark.com/faq."""

import os
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from bert_tf.core import storage

# Number of predictions in each file of a submission.
SIZES = {
    "CoLA": 1063, "SST-2": 1821, "MRPC": 1725, "QQP": 390965, "STS-B": 1379, "MNLI-m": 9796, "MNLI-mm": 9847,
    "QNLI": 5463, "RTE": 3000, "WNLI": 146, "AX": 1104,
}  # fmt: skip
_HEADER = "index\tprediction\n"


def write(folder: str, name: str, ids: Sequence[str], predictions: Sequence[str]) -> str:
    """Writes NAME.tsv atomically, with a header, and an id and a prediction on each further line; returns the path."""
    path = os.path.join(folder, f"{name}.tsv")
    lines = [f"{number}\t{prediction}\n" for number, prediction in zip(ids, predictions, strict=True)]
    storage.write_text(path, "".join([_HEADER, *lines]))
    return path


def read(path: str) -> str:
    """Returns the text of a file that `write` wrote; warns if GLUE's test set has another number of examples."""
    with tf.io.gfile.GFile(path) as file:
        text = file.read()
    count, expected = text.count("\n") - 1, SIZES[os.path.basename(path).removesuffix(".tsv")]
    if count != expected:
        logging.warning("%s: has %d predictions, but GLUE's test set has %d examples", path, count, expected)
    return text
