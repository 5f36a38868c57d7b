"""Compares our input pipeline with tf-models-official's input pipeline, in examples per second at S=128.

python benchmarks/input_pipeline.py [--data=FOLDER] [--rounds=3] [--seconds=3]

FOLDER and the text are the same as in benchmarks/generator.py. All pipelines shuffle and return batches of 256 rows.
The pipelines run alternately, without training. For each pipeline, only the best round counts. A second table shows how
long a run waits for its first batch, for new and for resumed runs.
"""

import argparse
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import machine
import tensorflow as tf
from generator import data_files
from official.nlp.data import pretrain_dataloader

from bert_tf.config import BertConfig
from bert_tf.core import command_line
from bert_tf.input.pipeline import ReadingOptions, pretraining_batches
from bert_tf.input.record_order import Position
from bert_tf.jobs.run_local import LocalRunner
from bert_tf.pretraining import record_files
from bert_tf.settings import PretrainingSettings
from data_gen.generator import create_pretraining_data
from data_gen.settings import GeneratorSettings
from tfrecords import manifest, reader

BATCH = 256
FILES = 8
# Maps the name of each row of the table to the masking of the records, and to the flags.
OURS = {
    "static masks": ("static", []),
    "dynamic masks": ("dynamic", []),
    "static masks, packed": ("static", ["--pack_sequences"]),
    "dynamic masks, packed": ("dynamic", ["--pack_sequences"]),
}


def write_records(folder: pathlib.Path, data: str | None) -> str:
    """Writes several files of records for each kind of masking; returns the path of the vocabulary."""
    corpus, vocabulary = data_files(data, folder)
    for masking in ("static", "dynamic"):
        settings = GeneratorSettings(
            input_file=corpus, vocab_file=vocabulary, output_file=f"{folder}/{masking}@{FILES}", masking=masking,
            dupe_factor=5,
        )  # fmt: skip
        with LocalRunner(2, preload=["data_gen.token_blocks", "data_gen.examples"]) as runner:
            create_pretraining_data(settings, runner)
    return vocabulary


def our_options(
    folder: pathlib.Path, masking: str, vocabulary: str, flags: list[str]
) -> tuple[list[str], ReadingOptions, dict]:
    """Returns the arguments that a training run would give to `pretraining_batches`."""
    files = reader.expand_files(f"{folder}/{masking}-*")
    with open(vocabulary, encoding="utf-8") as file:
        config = BertConfig.named("tiny", vocab_size=sum(1 for _ in file))
    settings = command_line.parse(
        PretrainingSettings,
        [f"--input_file={files[0]}", "--output_dir=unused", f"--vocab_file={vocabulary}", "--do_train", *flags],
    )
    settings, data = record_files.inspect(settings, config, files, files)
    reading = record_files.reading_options(settings, config, data)
    return files, reading, {"batch_size": BATCH, "training": True, "packing": data.packing}


def officials(folder: pathlib.Path) -> tf.data.Dataset:
    """Returns tf-models-official's training pipeline with its defaults."""
    config = pretrain_dataloader.BertPretrainDataConfig(
        input_path=f"{folder}/static-*", global_batch_size=BATCH, seq_length=128, max_predictions_per_seq=20, seed=1
    )
    return pretrain_dataloader.BertPretrainDataLoader(config).load()


def examples_in(batch: dict) -> int:
    """Counts the examples in a batch, whose rows may be packed."""
    packed = batch.get("sequence_ids")
    return len(batch["input_mask"]) if packed is None else int(packed.max(axis=1).sum())


def consume(batches: Iterator[dict], seconds: float) -> tuple[float, float, float]:
    """Reads batches for some seconds, and measures the rate.

    Returns:
      The number of examples per second.
      The number of examples per second of CPU time.
      The share of positions that are not padding.
    """
    started, worked = time.perf_counter(), time.process_time()
    examples = tokens = positions = 0
    while time.perf_counter() - started < seconds:
        batch = next(batches)
        examples += examples_in(batch)
        tokens += int(batch["input_mask"].sum())
        positions += batch["input_mask"].size
    elapsed, work = time.perf_counter() - started, time.process_time() - worked
    return examples / elapsed, examples / work, tokens / positions


def first_batch_seconds(make: Callable[[Position], tf.data.Dataset], start: Position) -> float:
    """Measures the time from the creation of the dataset to its first batch, in seconds."""
    started = time.perf_counter()
    next(iter(make(start)))
    return time.perf_counter() - started


def report(data: str | None = None, rounds: int = 3, seconds: float = 3.0) -> None:
    """Measures all pipelines and prints the tables."""
    print(machine.describe())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        vocabulary = write_records(folder, data)
        read = {label: our_options(folder, masking, vocabulary, flags) for label, (masking, flags) in OURS.items()}
        datasets = {
            label: pretraining_batches(files, reading, **options) for label, (files, reading, options) in read.items()
        }
        datasets["tf-models-official, static"] = officials(folder)
        iterators = {label: dataset.as_numpy_iterator() for label, dataset in datasets.items()}
        best = dict.fromkeys(iterators, (0.0, 0.0, 0.0))
        for turn in range(rounds + 1):
            for label, iterator in iterators.items():
                measured = consume(iterator, seconds if turn else 0.5)
                best[label] = max(best[label], measured) if turn else best[label]
        total = sum(shard["examples"] for shard in manifest.find_manifest(f"{folder}/static-00000-of-00008")["shards"])
        print(f"\nInput pipeline alone, S=128, {total:,} examples in {FILES} files")
        print(f"  {'':<28} {'examples/s':>12} {'ratio':>8} {'per CPU s':>12} {'real tokens':>12}")
        for label, (rate, per_core, real) in best.items():
            ratio = rate / best["tf-models-official, static"][0]
            print(f"  {label:<28} {rate:>12,.0f} {ratio:>6.2f} x {per_core:>12,.0f} {real:>12.1%}")
        del iterators
        files, reading, options = read["dynamic masks, packed"]
        print("\nSeconds until the first batch, dynamic masks, packed")
        for what, start in (
            ("at the beginning", Position()),
            ("at the end of the first epoch", Position(0, total - total % 1024, 0)),
            ("after 1,000 epochs", Position(1000, 0, 0)),
        ):
            waited = first_batch_seconds(lambda at: pretraining_batches(files, reading, start=at, **options), start)
            print(f"  {what:<32} {waited:>6.2f} s")


def main() -> None:
    """Reads the arguments and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("BERT_TF_DATA"), help="folder of the real data")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; the best round counts")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round in seconds")
    report(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
