"""Compares our tokenizer with google-research/bert's and Hugging Face's tokenizers, in tokens per second on one core.

By default, the benchmark reads the demo's English text with a vocabulary learned from this text; `--corpus` and
`--vocabulary` name other files. The process binds itself to one core, so `make bench` runs it as a separate process.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

import machine

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# These two variables must be set before any library starts threads.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
MACHINE = machine.describe()  # before the process is bound to one core
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import demo_text
import tensorflow as tf
from official.nlp.tools import tokenization as original_tokenization

from bert_tf.tokenization import BertTokenizer
from data_gen.settings import VocabularySettings
from data_gen.vocabulary import learn_vocabulary

ROUNDS = 5
BATCH = 1000
# Slow tokenizers read only every tenth batch of a round. The rates of these tokenizers count only these batches.
SLOW = 10


def demo_files(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes the demo's English text and a vocabulary of 8,000 tokens learned from this text; returns both paths."""
    corpus, vocabulary = folder / "text.txt", folder / "vocab.txt"
    demo_text.write_corpus(demo_text.read_modules(), corpus, dev=False)
    learn_vocabulary(
        VocabularySettings(input_file=str(corpus), output_file=str(vocabulary), vocab_size=8000, overwrite=True)
    )
    return corpus, vocabulary


def candidates(vocabulary: str) -> dict[str, tuple[int, Callable[[list[bytes], tf.Tensor], int]]]:
    """Maps the name of each tokenizer to two values: stride and function.

    A tokenizer with stride n reads every n-th batch. The function tokenizes a batch and returns the number of tokens.
    """
    tokenizer, original = BertTokenizer(vocabulary), original_tokenization.FullTokenizer(vocabulary)
    original.wordpiece_tokenizer.max_input_chars_per_word = 200
    signature = [tf.TensorSpec([None], tf.string)]
    encode = tf.function(tokenizer.encode, input_signature=signature)
    with_offsets = tf.function(tokenizer.encode_with_offsets, input_signature=signature)

    def run_original(lines, _):
        return sum(len(original.convert_tokens_to_ids(original.tokenize(line))) for line in lines)

    found = {
        "bert_tf": (1, lambda _, batch: encode(batch).values.shape[0]),
        "bert_tf, with offsets": (1, lambda _, batch: with_offsets(batch)[0].values.shape[0]),
        "google-research/bert (tf-models-official's port)": (SLOW, run_original),
    }
    try:
        from tokenizers import BertWordPieceTokenizer
    except ImportError:
        print("Hugging Face's tokenizers package is not installed; run pip install -e .[bench]")
        return found
    peer = BertWordPieceTokenizer(vocabulary, lowercase=True)

    def run_peer(lines, _):
        texts = [line.decode("utf-8", "ignore") for line in lines]
        return sum(len(row.ids) for row in peer.encode_batch(texts, add_special_tokens=False))

    # Keep the original in the last row, because ratios are relative to the last row.
    last = found.popitem()
    return {**found, "Hugging Face tokenizers": (SLOW, run_peer), last[0]: last[1]}


def best_rates(lines: list[bytes], vocabulary: str) -> list[tuple[str, float]]:
    """Returns each tokenizer's best rate in tokens per second.

    Each round runs all tokenizers in turn. The first round is a warm-up and does not count.
    """
    chunks = [lines[i : i + BATCH] for i in range(0, len(lines), BATCH)]
    batches = [(chunk, tf.constant(chunk)) for chunk in chunks]
    found = candidates(vocabulary)
    best = dict.fromkeys(found, 0.0)
    for round_number in range(ROUNDS + 1):
        for name, (stride, run) in found.items():
            started = time.perf_counter()
            tokens = sum(run(*batch) for batch in batches[::stride])
            if round_number:
                best[name] = max(best[name], tokens / (time.perf_counter() - started))
    return list(best.items())


def main() -> None:
    """Measures the tokenizers, and prints a table of the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", help="file with one text per line; default: the demo's English")
    parser.add_argument("--vocabulary", help="vocabulary; default: a vocabulary learned from the demo's English")
    parser.add_argument(
        "--data",
        default=os.environ.get("BERT_TF_DATA"),
        help="folder of the real data; its corpus and vocabulary replace the demo's",
    )
    parser.add_argument("--lines", type=int, help="number of lines to read; default: all")
    arguments = parser.parse_args()
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    corpus, vocabulary = arguments.corpus, arguments.vocabulary
    if arguments.data:
        corpus = corpus or f"{arguments.data}/corpus/english.txt"
        vocabulary = vocabulary or f"{arguments.data}/vocab/uncased-30522.txt"
    with tempfile.TemporaryDirectory() as folder:
        if not (corpus and vocabulary):
            demo_corpus, demo_vocabulary = demo_files(pathlib.Path(folder))
            corpus, vocabulary = corpus or demo_corpus, vocabulary or demo_vocabulary
        lines = pathlib.Path(corpus).read_bytes().split(b"\n")[: arguments.lines]
        rates = best_rates(lines, str(vocabulary))
    print(f"{MACHINE}\n\nTokenizer, {len(lines):,} lines, batches of {BATCH:,}, one core")
    for name, rate in rates:
        print(f"  {name:<50} {rate:>12,.0f} {'tokens/s':<12} {rate / rates[-1][1]:>6.2f} x")


if __name__ == "__main__":
    main()
