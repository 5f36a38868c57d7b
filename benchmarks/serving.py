"""Compares the local server with two peers: Hugging Face's pipeline and ONNX Runtime, each in a thin aiohttp server.

The model is a classifier with L=6 and H=384 or, with `--size=base`, L=12 and H=768 with random weights. All servers
have the same weights and take strings. With `--dtype=bfloat16`, the only peer is the pipeline in PyTorch's bfloat16,
because ONNX Runtime cannot multiply bfloat16 matrices on CPUs. Clients in another process on the same machine send one
sentence per request over persistent connections. Each row is the best of `--rounds` rounds; the servers run
alternately.
"""

import argparse
import asyncio
import contextlib
import csv
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import machine
from finetuning import checkpoint as checkpoint_folder

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).resolve().parents[1]
PEER = pathlib.Path(__file__).resolve().parent / "peers" / "serving.py"
CONCURRENCIES = (1, 8, 32)
LENGTH = 128
BATCHING = ("--enable_batching", "--max_batch_size=32", "--max_enqueued_batches=64", "--num_batch_threads=1")


def read_sentences(data: str | None) -> list[str]:
    """Returns sentences of mixed length from SST-2 or, without real data, from the demo's English text."""
    if data:
        with open(pathlib.Path(data) / "glue/SST-2/dev.tsv", encoding="utf-8", newline="") as file:
            found = [row["sentence"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    else:
        sys.path.insert(0, str(ROOT / "examples"))
        import demo_text

        with tempfile.NamedTemporaryFile(suffix=".txt") as file:
            demo_text.write_corpus(demo_text.read_modules(), pathlib.Path(file.name), dev=False)
            found = [line for line in pathlib.Path(file.name).read_text().splitlines() if line][:1000]
    random.Random(0).shuffle(found)
    return found


def export(checkpoint: str, peer: pathlib.Path, folder: pathlib.Path, dtype: str) -> None:
    """Exports the peers' classifier with the vocabulary of the checkpoint.

    Args:
      checkpoint: folder with the vocabulary.
      peer: folder with the weights of the peers' encoder and head.
      folder: folder for the export; version 1 is written.
      dtype: dtype of the matrices.
    """
    import tensorflow as tf
    from safetensors import safe_open

    from bert_tf import checkpoints
    from bert_tf.finetuning.description import TaskDescription
    from bert_tf.finetuning.model import FineTunedBert
    from bert_tf.modeling.precision import policy, policy_name
    from bert_tf.tasks.classification.classification_task import make_head
    from bert_tf.tokenization import BertTokenizer
    from export import signatures, weights
    from export.kinds.classification import ServedClassifier

    described = TaskDescription("classification", "bench", ("0", "1"), LENGTH, {"has_pairs": False})
    config = checkpoints.open_checkpoint(str(peer)).require_config()
    with policy(policy_name(dtype)):
        model = FineTunedBert(config, lambda config: make_head(described.labels, config))
        model({name: tf.ones([1, 4], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")})
        encoder = checkpoints.load_encoder(str(peer))
        for ours, loaded in zip(model.encoder.variables, encoder.variables, strict=True):
            ours.assign(loaded)
        with safe_open(peer / "model.safetensors", framework="np") as tensors:
            kernel, bias = tensors.get_tensor("classifier.weight"), tensors.get_tensor("classifier.bias")
        for variable in model.head.variables:
            variable.assign(bias if variable.shape.rank == 1 else kernel.T)
        weights.prepare(model, dtype)
        served = ServedClassifier(
            model, BertTokenizer(str(pathlib.Path(checkpoint) / "vocab.txt"), True), described, {}
        )
        tf.saved_model.save(
            served, str(folder / "1"), signatures=signatures.signatures_of(served, config.max_position_embeddings)
        )


def free_port() -> int:
    """Returns a free TCP port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def started(words: list[str], port: int) -> Iterator[None]:
    """Starts a server and waits until it listens."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None:
                sys.exit(f"{' '.join(words)}: ended with exit code {process.returncode}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)


async def ask(port: int, sentences: list[str], concurrency: int, seconds: float) -> tuple[float, float, float]:
    """Sends requests for some seconds, from as many clients as `concurrency` states.

    Returns:
      The number of answered requests per second.
      The 50th percentile of the latency in milliseconds.
      The 99th percentile of the latency in milliseconds.
    """
    import aiohttp

    url = f"http://127.0.0.1:{port}/v1/models/default:predict"
    latencies: list[float] = []
    position = iter(range(10**9))
    start = time.monotonic()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:

        async def client():
            while time.monotonic() - start < seconds:
                text = sentences[next(position) % len(sentences)]
                begin = time.monotonic()
                async with session.post(url, data=json.dumps({"instances": [text]})) as answer:
                    await answer.read()
                    if answer.status != 200:
                        sys.exit(f"{answer.status}: {await answer.text()}")
                latencies.append(time.monotonic() - begin)

        await asyncio.gather(*(client() for _ in range(concurrency)))
    rate = len(latencies) / (time.monotonic() - start)
    cuts = statistics.quantiles(latencies, n=100)
    return rate, cuts[49] * 1000, cuts[98] * 1000


async def probabilities(port: int, texts: list[str]) -> list[list[float]]:
    """Returns the class probabilities that a server computes for each text."""
    import aiohttp

    url = f"http://127.0.0.1:{port}/v1/models/default:predict"
    async with aiohttp.ClientSession() as session, session.post(url, data=json.dumps({"instances": texts})) as answer:
        rows = (await answer.json())["predictions"]
    return [row["probabilities"] if isinstance(row, dict) else row for row in rows]


def commands(folder: pathlib.Path, port: int, dtype: str) -> dict[str, list[str]]:
    """Maps the name of each server to the command that starts it."""
    serve = [
        sys.executable,
        "-m",
        "export.serve",
        f"--model_base_path={folder}/ours",
        f"--rest_api_port={port}",
        "--port=0",
    ]
    peer = [sys.executable, str(PEER), f"--folder={folder}/peer", f"--port={port}"]
    found = {
        "export.serve": [*serve, *BATCHING],
        "Hugging Face pipeline": [*peer, "--kind=pipeline", f"--dtype={dtype}"],
    }
    return found | ({"ONNX Runtime": [*peer, "--kind=onnxruntime"]} if dtype == "float32" else {})


def main() -> None:
    """Prepares the models, measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("BERT_TF_DATA"), help="folder of the real data")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--size", choices=("small", "base"), default="small")
    args = parser.parse_args()
    print(machine.describe(), flush=True)
    sys.path.insert(0, str(ROOT))
    sentences, port = read_sentences(args.data), free_port()
    best: dict[tuple[str, int], tuple[float, float, float]] = {}
    answers = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        checkpoint = checkpoint_folder()
        prepare = [
            sys.executable,
            str(PEER),
            f"--folder={folder}/peer",
            f"--prepare={checkpoint}",
            f"--size={args.size}",
        ]
        done = subprocess.run(prepare, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{done.stderr[-2000:]}\nthe peers' model cannot be prepared")
        export(checkpoint, folder / "peer", folder / "ours", args.dtype)
        for _ in range(args.rounds):
            for server, words in commands(folder, port, args.dtype).items():
                with started(words, port):
                    answers[server] = asyncio.run(probabilities(port, sentences[:32]))
                    for concurrency in CONCURRENCIES:
                        measured = asyncio.run(ask(port, sentences, concurrency, args.seconds))
                        best[server, concurrency] = max(measured, best.get((server, concurrency), (0.0, 0.0, 0.0)))
    report(best, answers)


def report(best: dict, answers: dict[str, list[list[float]]]) -> None:
    """Prints the table and the differences between the servers' answers."""
    ours = answers["export.serve"]
    for server, rows in answers.items():
        difference = max(abs(a - b) for row, own in zip(rows, ours, strict=True) for a, b in zip(row, own, strict=True))
        print(f"{server}: probabilities differ from ours by at most {difference:.1e}")
    print(f"{'server':<24}{'clients':>8}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}")
    for concurrency in CONCURRENCIES:
        for server in answers:
            rate, median, tail = best[server, concurrency]
            print(f"{server:<24}{concurrency:>8}{rate:>12.1f}{median:>9.1f}{tail:>9.1f}")
        peers = max(rate for (server, c), (rate, _, _) in best.items() if c == concurrency and server != "export.serve")
        print(f"{'':<24}{concurrency:>8}{best['export.serve', concurrency][0] / peers:>11.2f}x the better peer")


if __name__ == "__main__":
    main()
