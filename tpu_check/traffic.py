"""Counts the bytes that a compiled step moves between the chip's memory and its cores, by operation of the model.

The compiler's own count of bytes accessed does not distinguish the chip's memory (HBM) from the cores' own memory
(VMEM, 128 MiB on v5e), which holds many intermediate results. This module counts only bytes moved from and to HBM.
"""

import collections
import math
import re

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4,
          "s64": 8, "u64": 8, "f64": 8}  # fmt: skip
_ARRAY = re.compile(r"\b(pred|bf16|[suf]\d+)\[([\d,]*)\](?:\{([^}]*)\})?")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?(%[\w.\-]+) = (.*?) ([\w\-]+)\((.*)$")
_NAME = re.compile(r'op_name="([^"]*)"')
# Instructions that move no bytes; an asynchronous copy is counted at its start.
_STILL = ("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "copy-done", "slice-done", "async-done")
_NUMBER = re.compile(r"_?\d+")


def by_operation(compiled: str) -> collections.Counter:
    """Counts the bytes read from and written to the chip's memory in a step.

    The full size of all operands and results of an instruction is counted, even for a gather, which reads only some
    rows of its table.

    Args:
      compiled: the optimized program as text.

    Returns:
      Bytes by operation of the model. Numbers are removed from the names, so that all layers share one entry.
    """
    types, counted = {}, collections.Counter()
    for line in compiled[compiled.index("\nENTRY") :].splitlines()[2:]:
        if line.startswith("}"):
            break
        instruction = _INSTRUCTION.match(line)
        if not instruction:
            continue
        name, result, kind, rest = instruction.groups()
        types[name] = result
        if kind in _STILL:
            continue
        if kind in ("copy-start", "slice-start"):  # (destination, source, ...) and (source, destination, ...)
            moved = _arrays(result)[kind == "slice-start"][0]
            counted[kind] += moved
            continue
        operands = re.findall(r"%[\w.\-]+", rest.split("), ")[0])
        arrays = [
            array for text in (result, *(types.get(operand, "") for operand in operands)) for array in _arrays(text)
        ]
        label = _NAME.search(line)
        counted[_NUMBER.sub("", label[1]) if label else kind] += sum(size for size, on_core in arrays if not on_core)
    return counted


def _arrays(text: str) -> list[tuple[int, bool]]:
    """Returns the size in bytes of each array of a type, and whether it is in the cores' own memory."""
    arrays = []
    for dtype, sizes, layout in _ARRAY.findall(text):
        count = math.prod(int(size) for size in sizes.split(",") if size)
        arrays.append((count * _BYTES.get(dtype, 4), "S(1)" in layout))
    return arrays
