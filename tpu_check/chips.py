"""The TPU chips that a step can be compiled for, with their published figures."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of TPU chip.

    Attributes:
      name: as in --chips.
      topology: the smallest group of such chips that the compiler knows; a step is compiled for one of them.
      accelerator_type: the same for the TPU library's environment.
      flops: published peak of bfloat16 products, FLOP/s.
      bandwidth: published, of the chip's memory, bytes/s.
      memory: bytes.
    """

    name: str
    topology: str
    accelerator_type: str
    flops: float
    bandwidth: float
    memory: int


_GIB = 1 << 30

CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v5e", "v5e:2x2", "v5litepod-4", 197e12, 819e9, 16 * _GIB),
        Chip("v4", "v4:2x2x1", "v4-8", 275e12, 1228e9, 32 * _GIB),
    )
}
