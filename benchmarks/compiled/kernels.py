"""Counts the kernels of a step that was compiled for a GPU, and finds operations that are not fused.

A GPU runs each instruction of the compiled program as a kernel. A kernel reads its operands from the GPU's memory, and
writes its results to this memory.

Letters: B rows in a batch, A attention heads, S sequence length.
"""

import collections
import dataclasses
import re
from collections.abc import Mapping

from benchmarks.compiled import traffic

# A kernel that moves fewer bytes than this takes about as long as its launch.
SMALL = 1 << 20
PRODUCTS, REDUCTIONS, BLOCKS, LOOPS, COPIES = "products", "reductions", "blocks", "loops", "copies"
_PRODUCT = re.compile(
    r'"kind":"__(?:triton_nested_gemm|triton_gemm|cublas|cudnn)|custom_call_target="__(?:cublas|cudnn)'
)
_NO_KERNEL = re.compile(r"^(?:parameter|tuple|get-tuple-element|bitcast|constant|after-all)$")
_SIZES = re.compile(r"\[([\d,]+)\]")


@dataclasses.dataclass(frozen=True)
class Kernels:
    """The kernels of a step.

    Attributes:
      counts: number of kernels by kind. The kinds are PRODUCTS (matrix products), REDUCTIONS (reductions that are fused
        with the computation of their inputs), BLOCKS (normalizations and softmaxes in one pass), LOOPS (elementwise
        operations), COPIES (transposes and copies that are not fused), and XLA's opcodes for other kernels.
      small: number of kernels that move fewer than SMALL bytes.
      scores: number of kernels that read or write attention scores or probabilities, [B, A, S, S]. Fused attention has
        no such kernels.
      scores_moved: number of bytes that the kernels counted by `scores` move.
    """

    counts: Mapping[str, int]
    small: int
    scores: int
    scores_moved: int

    def describe(self) -> str:
        """Returns a summary on one line."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items(), key=lambda item: -item[1]))
        return (
            f"{sum(self.counts.values())} kernels: {kinds}; {self.small} of them small; "
            f"{self.scores} move attention scores, {self.scores_moved / 1e9:.2f} GB"
        )


def count(compiled: str) -> Kernels:
    """Counts the kernels in the text of an optimized program."""
    launched = [one for one in traffic.instructions(compiled) if not _NO_KERNEL.match(one.kind)]
    shapes = [_shapes(one) for one in launched]
    lengths = {shape[-1] for found in shapes for shape in found if len(shape) == 4 and shape[-2] == shape[-1] > 1}
    # In matrix products, B and A may be merged into one dimension.
    moves_scores = [
        any(len(shape) in (3, 4) and shape[-2] == shape[-1] in lengths for shape in found) for found in shapes
    ]
    return Kernels(
        collections.Counter(map(_kind, launched)),
        sum(one.moved < SMALL for one in launched),
        sum(moves_scores),
        sum(one.moved for one, moves in zip(launched, moves_scores, strict=True) if moves),
    )


def _kind(instruction: traffic.Instruction) -> str:
    if _PRODUCT.search(instruction.line):
        return PRODUCTS
    if instruction.kind in ("copy", "transpose"):
        return COPIES
    for mark, kind in (("kind=kInput", REDUCTIONS), ("kind=kCustom", BLOCKS), ("kind=kLoop", LOOPS)):
        if mark in instruction.line:
            return kind
    return instruction.kind


def _shapes(instruction: traffic.Instruction) -> list[tuple[int, ...]]:
    found = _SIZES.findall(" ".join((instruction.result, *instruction.operands)))
    return [tuple(map(int, sizes.split(","))) for sizes in found]
