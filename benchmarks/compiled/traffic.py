"""Counts the bytes that a compiled step moves between the chip's memory and the cores, by operation of the model.

The TPU compiler's count includes both the bytes accessed in the chip's memory (HBM) and the bytes accessed in the
cores' own memory (VMEM, 128 MiB on v5e), which holds many intermediate results. This module counts only the bytes that
are read from and written to HBM.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4,
          "s64": 8, "u64": 8, "f64": 8}  # fmt: skip
_ARRAY = re.compile(r"\b(pred|bf16|[suf]\d+)\[([\d,]*)\](?:\{([^}]*)\})?")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?(%[\w.\-]+) = (.*?) ([\w\-]+)\((.*)$")
_NAME = re.compile(r'op_name="([^"]*)"')
# Instructions for which no bytes are counted. The bytes of an asynchronous copy are counted at the start of the copy.
_STILL = ("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "copy-done", "slice-done", "async-done")
_NUMBER = re.compile(r"_?\d+")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction of the entry computation.

    Attributes:
      line: text of the instruction.
      kind: opcode.
      result: type of the result.
      operands: types of the operands.
      label: name of the model's operation, without the numbers in the name; the opcode if the operation is unknown.
      moved: bytes read from and written to the chip's memory.
    """

    line: str
    kind: str
    result: str
    operands: tuple[str, ...]
    label: str
    moved: int


def by_operation(compiled: str) -> collections.Counter:
    """Counts the bytes that a step reads from and writes to the chip's memory.

    All operands and results of an instruction are counted in full, even the table of a gather, although a gather reads
    only some rows of the table.

    Args:
      compiled: the optimized program as text.

    Returns:
      The number of bytes by operation of the model. Numbers are removed from the names of operations, so that all
      layers share one entry.
    """
    counted = collections.Counter()
    for instruction in instructions(compiled):
        if instruction.kind not in _STILL:
            counted[instruction.label] += instruction.moved
    return counted


def instructions(compiled: str) -> Iterator[Instruction]:
    """Yields the instructions in the entry computation of an optimized program; `compiled` is the program's text."""
    types = {}
    for line in compiled[compiled.index("\nENTRY") :].splitlines()[2:]:
        if line.startswith("}"):
            break
        found = _INSTRUCTION.match(line)
        if not found:
            continue
        name, result, kind, rest = found.groups()
        types[name] = result
        operands = tuple(types.get(operand, "") for operand in re.findall(r"%[\w.\-]+", rest.split("), ")[0]))
        if kind in _STILL:
            moved = 0
        elif kind in ("copy-start", "slice-start"):
            # A copy's result is (destination, source, ...), but a slice's result is (source, destination, ...).
            moved = _arrays(result)[kind == "slice-start"][0]
        else:
            moved = sum(size for text in (result, *operands) for size, on_core in _arrays(text) if not on_core)
        named = _NAME.search(line) if not kind.endswith("-start") else None
        yield Instruction(line, kind, result, operands, _NUMBER.sub("", named[1]) if named else kind, moved)


def _arrays(text: str) -> list[tuple[int, bool]]:
    """Returns the size in bytes of each array in a type, and whether the array is in the cores' own memory."""
    arrays = []
    for dtype, sizes, layout in _ARRAY.findall(text):
        count = math.prod(int(size) for size in sizes.split(",") if size)
        arrays.append((count * _BYTES.get(dtype, 4), "S(1)" in layout))
    return arrays
