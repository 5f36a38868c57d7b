"""Describes the TPUs and GPUs for which a step can be compiled, with their published specifications."""

import dataclasses

TPU, GPU = "tpu", "gpu"


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of chip.

    Attributes:
      kind: TPU or GPU. The kind determines the compiler.
      target: the compiler's target. For a TPU, this is the name of the smallest supported topology, and a step is
        compiled for one chip of this topology. For a GPU, this is the text of XLA's target configuration.
      flops: published peak of bfloat16 matrix products, FLOP/s.
      bandwidth: published memory bandwidth, bytes/s.
      memory: memory size in bytes.
      accelerator_type: value of the TPU library's environment variable TPU_ACCELERATOR_TYPE for the topology; "" for
        a GPU.
    """

    name: str
    kind: str
    target: str
    flops: float
    bandwidth: float
    memory: int
    accelerator_type: str = ""


_GIB = 1 << 30
_KIB = 1 << 10


def _gpu(
    name: str, device: str, capability: tuple[int, int], *, flops: float, bandwidth: float, memory: int,
    cores: int, fpus: int, shared_memory: int, l2_cache: int, clock_ghz: float,
) -> Chip:  # fmt: skip
    """Returns a GPU with its description for XLA, so that compilation does not need such a GPU.

    Args:
      cores: number of multiprocessors.
      fpus: number of float32 units per multiprocessor.
      shared_memory: bytes of shared memory per multiprocessor; a block of threads can use all but 1 KiB of it.
      l2_cache: size of the L2 cache in bytes.
      clock_ghz: boost clock in GHz.
    """
    major, minor = capability
    facts = {
        "threads_per_block_limit": 1024, "threads_per_warp": 32, "threads_per_core_limit": 2048,
        "shared_memory_per_block": 48 * _KIB, "shared_memory_per_block_optin": shared_memory - _KIB,
        "shared_memory_per_core": shared_memory, "core_count": cores, "fpus_per_core": fpus,
        "block_dim_limit_x": (1 << 31) - 1, "block_dim_limit_y": (1 << 16) - 1, "block_dim_limit_z": (1 << 16) - 1,
        "registers_per_core_limit": 1 << 16, "registers_per_block_limit": 1 << 16, "l2_cache_size": l2_cache,
        "clock_rate_ghz": clock_ghz, "memory_bandwidth": int(bandwidth), "device_memory_size": memory,
    }  # fmt: skip
    listed = " ".join(f"{key}: {value}" for key, value in facts.items())
    target = (
        f"gpu_device_info {{ {listed} cuda_compute_capability {{ major: {major} minor: {minor} }} }}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 12 }\n"
        "runtime_version { major: 13 minor: 0 patch: 0 }\n"
        f'device_description_str: "{device}"\n'
    )
    return Chip(name, GPU, target, flops, bandwidth, memory)


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v5e", TPU, "v5e:2x2", 197e12, 819e9, 16 * _GIB, "v5litepod-4"),
        Chip("v4", TPU, "v4:2x2x1", 275e12, 1228e9, 32 * _GIB, "v4-8"),
        _gpu(
            "h200", "NVIDIA H200", (9, 0), flops=989e12, bandwidth=4800e9, memory=143771 << 20,
            cores=132, fpus=128, shared_memory=228 * _KIB, l2_cache=50 << 20, clock_ghz=1.98,
        ),
        _gpu(
            "h100", "NVIDIA H100 80GB HBM3", (9, 0), flops=989e12, bandwidth=3350e9, memory=81559 << 20,
            cores=132, fpus=128, shared_memory=228 * _KIB, l2_cache=50 << 20, clock_ghz=1.98,
        ),
        _gpu(
            "a100", "NVIDIA A100-SXM4-80GB", (8, 0), flops=312e12, bandwidth=2039e9, memory=81920 << 20,
            cores=108, fpus=64, shared_memory=164 * _KIB, l2_cache=40 << 20, clock_ghz=1.41,
        ),
    )
}  # fmt: skip
