r"""Prints the memory traffic of compiled steps by operation, and for GPUs, their kernels.

make tpu-check && .venv/bin/python -m benchmarks.compiled compiled_programs/*.hlo

`compile_check` prints the path of each program that it has compiled.
"""

import argparse
import pathlib

from benchmarks.compiled import kernels, traffic

_MOST_OPERATIONS = 12


def main() -> None:
    """Prints the counts of each program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", nargs="+", type=pathlib.Path, help="optimized programs, which end in .hlo")
    for path in parser.parse_args().programs:
        text = path.read_text()
        moved = traffic.by_operation(text)
        print(f"{path}: {sum(moved.values()) / 1e9:.2f} GB moved")
        for operation, size in moved.most_common(_MOST_OPERATIONS):
            print(f"  {size / 1e9:>8.3f} GB  {operation}")
        if "S(1)" not in text:  # only the programs of TPUs place arrays in the cores' own memory
            print(f"  {kernels.count(text).describe()}")


if __name__ == "__main__":
    main()
