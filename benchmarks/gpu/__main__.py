r"""Times the pre-training step on a GPU that TensorFlow cannot reach, in two halves.

    python -m benchmarks.gpu lower gpu_bundles          # on a machine with TensorFlow; a few minutes, no GPU
    python -m benchmarks.gpu run gpu_bundles            # on a machine with the GPU, jax, numpy, torch and transformers

The first half writes the step as StableHLO: a few hundred kilobytes for each model and sequence length. The second half
compares the losses of small steps with TensorFlow's losses, then times our step and Hugging Face's BertForPreTraining.
"""

import argparse
import os
import pathlib
import sys

from benchmarks.gpu.cases import CASES


def main() -> None:
    """Runs one half of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    halves = parser.add_subparsers(dest="half", required=True)
    lower = halves.add_parser("lower", help="write bundles; needs TensorFlow")
    run = halves.add_parser("run", help="check and time bundles; needs jax, torch and transformers, but not TensorFlow")
    for half in (lower, run):
        half.add_argument("folder", type=pathlib.Path, help="folder of the bundles")
        half.add_argument("--cases", default=",".join(CASES), help="comma-separated, from " + ", ".join(CASES))
    run.add_argument("--peers", default="bert_tf,compiled,eager", help="comma-separated, from bert_tf, compiled, eager")
    run.add_argument("--batch_size", type=int, default=0, help="rows per step; 0: the case's default")
    run.add_argument("--steps", type=int, default=20, help="steps per round")
    run.add_argument("--rounds", type=int, default=4, help="number of rounds; the best round counts")
    run.add_argument("--largest_batch", action="store_true", help="also find the largest batch of each peer")
    run.add_argument("--output", type=pathlib.Path, help="also append the results to this file as JSON Lines")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.cases.split(",") if name not in CASES]
    if unknown:
        sys.exit(f"error: --cases: there is no case {unknown[0]}; choose from {', '.join(CASES)}")
    if arguments.half == "lower":
        from bert_tf.compile_check import xla_flags

        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        xla_flags.keep_counters()
        from benchmarks.gpu.lower import lower as write_bundles

        write_bundles(arguments.folder, arguments.cases.split(","))
    else:
        from benchmarks.gpu.run import run as run_bundles

        run_bundles(arguments)


if __name__ == "__main__":
    main()
