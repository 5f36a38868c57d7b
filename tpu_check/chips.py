"""The TPU chips for which a step can be compiled, with their published specifications."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of TPU chip.

    Attributes:
      name: name in --chips.
      topology: the smallest topology that the compiler supports; a step is compiled for one chip of it.
      accelerator_type: the name of this topology in the environment of the TPU library.
      flops: published peak of bfloat16 matrix products, FLOP/s.
      bandwidth: published memory bandwidth, bytes/s.
      memory: memory size in bytes.
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
