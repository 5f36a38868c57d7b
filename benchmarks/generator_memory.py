"""Measures the memory of the generator for corpora of different sizes. The memory should not depend on the size.

python benchmarks/generator_memory.py [--data=FOLDER] [--megabytes=15,150] [--num_workers=2]

A corpus of each size repeats the documents of FOLDER/corpus/english.txt (or of CPython's documentation), each time in a
new random order. The corpus is written to the folder for temporary files, TMPDIR. This folder needs about five times
the space of the largest corpus. Use --megabytes=15,150,1500 for the full range.
"""

import argparse
import os
import pathlib
import random
import tempfile

import generator
import machine


def write_corpus(path: pathlib.Path, documents: list[str], size: int) -> None:
    """Writes shuffled documents until the file has `size` bytes."""
    rng, written = random.Random(1), 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            rng.shuffle(documents)
            for document in documents:
                written += len(document.encode()) + 2
                file.write(document + "\n\n")
                if written >= size:
                    break


def main() -> None:
    """Prints one line per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("BERT_TF_DATA"), help="folder of the real data")
    parser.add_argument("--megabytes", default="15,150", help="comma-separated sizes of the corpus")
    parser.add_argument("--num_workers", type=int, default=2)
    arguments = parser.parse_args()
    print(machine.describe())
    print(f"Generator, {arguments.num_workers} workers, S=128, dupe_factor 1")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        corpus, vocabulary = generator.data_files(arguments.data, folder)
        documents = [text for text in pathlib.Path(corpus).read_text(encoding="utf-8").split("\n\n") if text.strip()]
        grown, output = folder / "grown.txt", folder / "out.tfrecord"
        for megabytes in map(int, arguments.megabytes.split(",")):
            write_corpus(grown, documents, megabytes * 1_000_000)
            words = generator.flags(str(grown), vocabulary, output, dupe_factor=1)
            run = generator.measure(generator.ours(*words, f"--num_workers={arguments.num_workers}"))
            memory, count = run.peak_bytes / 1e6, generator.count_records(output)
            size = f"{megabytes:>6,} MB {count:>12,} examples"
            print(f"  {size} {run.seconds:>9.1f} s {memory:>8,.0f} MB peak", flush=True)
            output.unlink()
            (folder / "out.tfrecord.manifest.json").unlink()


if __name__ == "__main__":
    main()
