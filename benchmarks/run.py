"""Runs all comparisons with the installed peers: `make bench`.

Most rows are the best of several rounds. The rounds of all peers alternate, so that other load on the machine affects
all peers. Compare ratios, because absolute rates are valid only for this machine and this run. Each benchmark first
prints the processor.
"""

import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def main() -> None:
    """Runs each benchmark in its own process."""
    for name in ("tokenizer", "generator", "input_pipeline", "step", "finetuning", "embeddings", "features", "serving"):
        subprocess.run([sys.executable, str(FOLDER / f"{name}.py")], check=True)
    subprocess.run([sys.executable, str(FOLDER / "serving.py"), "--size=base"], check=True)


if __name__ == "__main__":
    main()
