"""Memory of the generator as the corpus grows; it should not grow with it.

python benchmarks/generator_memory.py [--data=FOLDER] [--megabytes=15,150] [--num_workers=2]

Corpora of each size are the documents of FOLDER/corpus/english.txt (or of the English that CPython carries), again
and again in another random order, in the folder for temporary files: TMPDIR has to have room for about five times
the largest. For the full range: --megabytes=15,150,1500.
"""

import argparse
import os
import pathlib
import random
import tempfile

import generator
import machine


def write_corpus(path: pathlib.Path, documents: list[str], size: int) -> None:
    """Writes shuffled documents until `size` bytes are there."""
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
    """Prints a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("BERT_TF_DATA"), help="data folder")
    parser.add_argument("--megabytes", default="15,150", help="sizes of text, with commas")
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
