"""Compares exports for small devices with the SavedModel of the same run: accuracy on the dev data, size and latency.

python benchmarks/small_devices.py --checkpoint_dir=mrpc

The run must have been evaluated (`--do_eval`), because the benchmark reads the texts and labels from the run's
`dev_predictions.jsonl`. The latency is the median over requests with one row of tokens, on one thread. The models run
alternately.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import machine
import numpy as np
import tensorflow as tf

from bert_tf.finetuning import description
from bert_tf.tasks import evaluation_file
from bert_tf.text.packing import pack
from bert_tf.tokenization import BertTokenizer
from export.saved_model import export_saved_model
from export.settings import ExportSettings

Answer = Callable[..., Mapping[str, np.ndarray]]
_TIMED_ROWS = 100


def exported(run: str, folder: str) -> dict[str, tuple[Answer, int]]:
    """Exports a run in three formats.

    Returns:
      A map from the name of each format to two values: a function from tokens to probabilities, and the size in bytes.
    """
    saved = export_saved_model(ExportSettings(checkpoint_dir=run, export_dir=f"{folder}/saved_model"))
    model = tf.saved_model.load(saved)
    files = [path for path in pathlib.Path(saved).rglob("*") if path.name.startswith(("saved_model", "variables."))]

    def ask(**rows: np.ndarray) -> Mapping[str, np.ndarray]:
        return model.signatures["tokens"](**{name: tf.constant(row) for name, row in rows.items()})

    found = {"SavedModel": (ask, sum(path.stat().st_size for path in files))}
    for quantize, name in (("none", "LiteRT float32"), ("int8", "LiteRT int8")):
        flags = {"format": "litert", "quantize": quantize}
        path = export_saved_model(ExportSettings(checkpoint_dir=run, export_dir=f"{folder}/{quantize}", **flags))
        interpreter = tf.lite.Interpreter(f"{path}/model.tflite", num_threads=1)
        found[name] = (interpreter.get_signature_runner("tokens"), os.path.getsize(f"{path}/model.tflite"))
    return found


def rows_of(run: str) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
    """Returns a run's N dev examples: the inputs of each example, int32 [1, S] without padding, and the N label ids."""
    described, lines = description.read(run), evaluation_file.read(run)
    tokenizer = BertTokenizer(run)
    segments = [tokenizer.encode([line[name] for line in lines]) for name in ("text_a", "text_b") if name in lines[0]]
    packed = pack(
        *segments, *[None][len(segments) - 1 :], max_seq_length=described.max_seq_length, **tokenizer.row_form
    )
    lengths = packed["input_mask"].numpy().sum(axis=1)
    rows = [
        {name: values.numpy()[i : i + 1, :length] for name, values in packed.items()}
        for i, length in enumerate(lengths)
    ]
    return rows, np.array([described.labels.index(line["label"]) for line in lines])


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint_dir", required=True)
    run = parser.parse_args().checkpoint_dir
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rows, labels = rows_of(run)
    with tempfile.TemporaryDirectory() as folder:
        models = exported(run, folder)
        times: dict[str, list[float]] = {name: [] for name in models}
        answers: dict[str, list[np.ndarray]] = {name: [] for name in models}
        for number, row in enumerate(rows):
            for name, (answer, _) in models.items():
                started = time.perf_counter()
                answers[name].append(np.asarray(answer(**row)["probabilities"])[0])
                if number < _TIMED_ROWS:
                    times[name].append(time.perf_counter() - started)
        reference = np.array(answers["SavedModel"])
        print(machine.describe())
        print(f"{len(rows)} rows of {np.mean([row['input_ids'].size for row in rows]):.0f} tokens on average")
        print("| model | MB | accuracy | largest difference of a probability | ms, median |")
        print("|---|---|---|---|---|")
        for name, (_, size) in models.items():
            found = np.array(answers[name])
            accuracy, difference = np.mean(found.argmax(axis=1) == labels), np.abs(found - reference).max()
            median = statistics.median(times[name]) * 1000
            print(f"| {name} | {size / 1e6:.1f} | {accuracy:.4f} | {difference:.2g} | {median:.1f} |")


if __name__ == "__main__":
    main()
