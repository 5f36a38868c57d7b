"""Compares the data generator with tf-models-official's generator: time, examples and memory of the whole command.

python benchmarks/generator.py [--data=FOLDER] [--rounds=1] [--dupe_factor=5]

FOLDER contains corpus/english.txt and vocab/uncased-30522.txt. Without --data and BERT_TF_DATA, the text is the English
documentation in CPython, and the vocabulary is learned from this text. Both generators get the same flags and run
alternately, once per round. For each generator, only the best round counts.
"""

import argparse
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import machine

ROOT = pathlib.Path(__file__).resolve().parents[1]
_INTERVAL = 0.2  # seconds between two measurements of memory
# These programs measure their work after the imports, and print wall time and CPU time in seconds on the last line.
# Other work on the machine affects CPU time less than wall time.
OURS_INSIDE = """
import sys, time
from bert_tf.core import command_line
from bert_tf.jobs import run_local
from data_gen import examples, generator, settings
parsed = command_line.parse(settings.GeneratorSettings, sys.argv[1:])
started = time.perf_counter(), time.process_time()
with run_local.LocalRunner(parsed.num_workers, ["data_gen.token_blocks", "data_gen.examples"]) as runner:
    generator.create_pretraining_data(parsed, runner)
print(time.perf_counter() - started[0], time.process_time() - started[1])
"""
THEIRS = """
import sys, time
from official.nlp.data import create_pretraining_data as incumbent
incumbent.FLAGS(sys.argv)
started = time.perf_counter(), time.process_time()
incumbent.main(None)
print(time.perf_counter() - started[0], time.process_time() - started[1])
"""


@dataclasses.dataclass(frozen=True)
class Measured:
    """A command's wall time in seconds, its peak memory in bytes (0 without /proc), and its output."""

    seconds: float
    peak_bytes: int
    output: str


def measure(command: list[str]) -> Measured:
    """Runs a command and measures it.

    The memory is the sum of the proportional set sizes of all the command's processes, so shared memory counts once.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    started = time.perf_counter()
    # Run in a new session to identify all processes of the command.
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    peak = [0]
    watcher = threading.Thread(target=_watch, args=(process, peak))
    watcher.start()
    output, errors = process.communicate()
    seconds = time.perf_counter() - started
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {process.returncode}:\n{errors}")
    return Measured(seconds, peak[0], output)


def _watch(process: subprocess.Popen, peak: list[int]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], _memory(process.pid))
        time.sleep(_INTERVAL)


def _memory(session: int) -> int:
    total = 0
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            pass  # the process has just ended
    return total


def data_files(data: str | None, folder: pathlib.Path) -> tuple[str, str]:
    """Returns the paths of the corpus and the vocabulary.

    Without a data folder, this function makes both files from CPython's documentation.
    """
    if data:
        return f"{data}/corpus/english.txt", f"{data}/vocab/uncased-30522.txt"
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT)]
    import demo_text

    from data_gen.settings import VocabularySettings
    from data_gen.vocabulary import learn_vocabulary

    corpus, vocabulary = str(folder / "text.txt"), str(folder / "vocab.txt")
    demo_text.write_corpus(demo_text.read_modules(), pathlib.Path(corpus), dev=False)
    learn_vocabulary(VocabularySettings(input_file=corpus, output_file=vocabulary, vocab_size=8000, overwrite=True))
    return corpus, vocabulary


def flags(corpus: str, vocabulary: str, output: pathlib.Path, dupe_factor: int) -> list[str]:
    """Returns flags that both generators support."""
    return [
        f"--input_file={corpus}", f"--vocab_file={vocabulary}", f"--output_file={output}", "--do_lower_case=true",
        "--max_seq_length=128", "--max_predictions_per_seq=20", f"--dupe_factor={dupe_factor}",
    ]  # fmt: skip


def ours(*words: str) -> list[str]:
    """Returns the command of our generator."""
    return [sys.executable, "-m", "data_gen.create_pretraining_data", *words]


def count_records(path: pathlib.Path) -> int:
    """Counts the records of a file. Reads only the length of each record."""
    count, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < size:
            # A record has a length, a checksum of the length, the data, and a checksum of the data.
            file.seek(4 + int.from_bytes(file.read(8), "little") + 4, os.SEEK_CUR)
            count += 1
    return count


def report(data: str | None = None, rounds: int = 1, dupe_factor: int = 5) -> None:
    """Measures both generators and prints the tables."""
    print(machine.describe())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        corpus, vocabulary = data_files(data, folder)
        results: dict[str, list[tuple[int, Measured]]] = {}
        for turn in range(rounds):

            def words(peer, turn=turn):
                # Use a new file name in each round, because the generator does not write a finished set again.
                return flags(corpus, vocabulary, folder / f"{peer}-{turn}", dupe_factor)

            commands = {
                "bert_tf 1 worker": ours(*words("bert_tf 1 worker"), "--num_workers=1"),
                "bert_tf 2 workers": ours(*words("bert_tf 2 workers"), "--num_workers=2"),
                "inside": [sys.executable, "-c", OURS_INSIDE, *words("inside"), "--num_workers=1"],
                "tf-models-official": [sys.executable, "-c", THEIRS, *words("tf-models-official")],
            }
            for peer, command in commands.items():
                measured, output = measure(command), folder / f"{peer}-{turn}"
                results.setdefault(peer, []).append((count_records(output), measured))
                output.unlink()
        _show(pathlib.Path(corpus).stat().st_size, dupe_factor, results)


def _show(size: int, dupe_factor: int, results: dict[str, list[tuple[int, Measured]]]) -> None:
    best = {peer: min(runs, key=lambda run: run[1].seconds) for peer, runs in results.items()}
    examples, inside = best.pop("inside")
    theirs = best["tf-models-official"]
    print(f"\nGenerator, {size / 1e6:.1f} MB of English, dupe_factor {dupe_factor}, S=128, whole command")
    print(f"  {'':<22} {'wall':>9} {'ratio':>8} {'examples':>10} {'peak memory':>13} {'ratio':>8}")
    for peer, (count, run) in best.items():
        memory = f"{run.peak_bytes / 1e6:>10,.0f} MB {run.peak_bytes / max(1, theirs[1].peak_bytes):>6.2f} x"
        speed = theirs[1].seconds / run.seconds
        print(f"  {peer:<22} {run.seconds:>7.1f} s {speed:>6.2f} x {count:>10,} {memory}")
    print("\nGenerator, one core, after imports")
    inside_both = {"bert_tf": (examples, inside.output), "tf-models-official": (theirs[0], theirs[1].output)}
    rates = {
        peer: [count / float(seconds) for seconds in output.split()[-2:]]
        for peer, (count, output) in inside_both.items()
    }
    for index, unit in enumerate(("examples/s", "examples per second of CPU time")):
        for peer, rate in rates.items():
            print(
                f"  {peer:<22} {rate[index]:>9,.0f} {rate[index] / rates['tf-models-official'][index]:>7.2f} x  {unit}"
            )


def main() -> None:
    """Reads the arguments and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("BERT_TF_DATA"), help="folder of the real data")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds; the best round counts")
    parser.add_argument("--dupe_factor", type=int, default=5, help="number of passes over the text")
    report(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
