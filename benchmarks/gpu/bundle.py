"""Stores a training step on disk as a bundle: a program for any batch size, and a description of its arguments.

A bundle is one compressed JSON file. The program's texts for different batch sizes differ only in numbers that are
multiples of the batch size. The file contains the text with these multiples marked.
"""

import dataclasses
import json
import lzma
import pathlib
import re
import sys

from benchmarks.gpu.cases import Case

_NUMBERS = re.compile(r"(\d+)")
_MARKED = re.compile(r"§(\d+)")
_ENDING = ".json.xz"


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a program.

    Attributes:
      role: "batch", "weight", "m" or "v" (first or second moment), "total" or "weight_of_mean" (metrics), or "other".
      name: name of the batch column, variable or metric.
      result: index of the program's result that is the argument's new value; None if the step does not change the
        argument.
    """

    role: str
    name: str
    result: int | None


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A step for any batch size.

    Attributes:
      case: the step's shapes.
      arguments: the arguments in order.
      flops: FLOPs per row of the matrix products that our step computes; a multiply-add counts as two FLOPs.
      full_flops: FLOPs per row of all matrix products of a step, including products that our step leaves out.
      template: StableHLO text with "§n" for n times the batch size.
    """

    case: Case
    arguments: tuple[Argument, ...]
    flops: float
    full_flops: float
    template: str

    def program(self, batch_size: int) -> str:
        """Returns the StableHLO text for a batch size."""
        return _MARKED.sub(lambda found: str(int(found[1]) * batch_size), self.template)


def template(programs: dict[int, str]) -> str:
    """Marks the multiples of the batch size in a program.

    Args:
      programs: maps batch sizes to texts. The first two texts give the template; all other texts must agree with the
        template.

    Returns:
      The text of the program with "§n" for n times the batch size.

    Raises:
      ValueError: the programs differ in anything but multiples of the batch size.
    """
    (first, one), (second, other), *rest = programs.items()
    parts, others = _NUMBERS.split(one), _NUMBERS.split(other)
    if len(parts) != len(others):
        raise ValueError(f"the programs for {first} and {second} rows have different operations")
    for index, (mine, yours) in enumerate(zip(parts, others, strict=True)):
        if mine == yours:
            continue
        if not index % 2 or int(mine) % first or int(mine) // first * second != int(yours):
            raise ValueError(f"{mine!r} and {yours!r} for {first} and {second} rows are not multiples of the rows")
        parts[index] = f"§{int(mine) // first}"
    made = "".join(parts)
    for batch_size, text in rest:
        if _MARKED.sub(lambda found, rows=batch_size: str(int(found[1]) * rows), made) != text:
            raise ValueError(f"the program for {batch_size} rows contradicts the programs for {first} and {second}")
    return made


def write(folder: pathlib.Path, name: str, bundle: Bundle) -> pathlib.Path:
    """Writes a bundle, and returns its path."""
    path = folder / f"{name}{_ENDING}"
    with lzma.open(path, "wt") as file:
        json.dump(dataclasses.asdict(bundle), file)
    return path


def read(folder: pathlib.Path, name: str) -> Bundle:
    """Reads a bundle; ends the process with one line if the file is missing."""
    path = folder / f"{name}{_ENDING}"
    if not path.exists():
        sys.exit(f"error: {path}: no such file; write it with `python -m benchmarks.gpu lower`, which needs TensorFlow")
    with lzma.open(path, "rt") as file:
        fields = json.load(file)
    arguments = tuple(Argument(**one) for one in fields.pop("arguments"))
    return Bundle(Case(**fields.pop("case")), arguments, **fields)


def names(folder: pathlib.Path) -> list[str]:
    """Returns the names of the bundles in a folder."""
    return sorted(path.name.removesuffix(_ENDING) for path in folder.glob(f"*{_ENDING}"))
