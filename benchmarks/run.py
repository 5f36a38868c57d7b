"""Side by side with the peers that are installed, in one run: make bench.

Every row is the best of several rounds, the rounds of ours and the peers' taking turns, so that noise of the
machine falls on all. Ratios are what counts; absolute rates hold for this machine and moment only, and each
benchmark names its processor first.
"""

import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def main() -> None:
    """Prints every table, each made by a process of its own."""
    for name in ("tokenizer", "generator", "input_pipeline", "step"):
        subprocess.run([sys.executable, str(FOLDER / f"{name}.py")], check=True)


if __name__ == "__main__":
    main()
